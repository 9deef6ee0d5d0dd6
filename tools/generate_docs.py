"""Write the pages of the documentation that come from the code: the rules, the fields of the spec, the verbs, one
recipe on every scheduler, and tables of model families and of other frameworks' recipes, which come from the tests."""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from functools import cache
from pathlib import Path

from framework_recipes import frameworks_page
from model_families import families_page
from reference_spec import spec_page
from reference_verbs import verb_pages
from schedulers_page import schedulers_page

from trainwright.check.examples import companions, examples, without_header
from trainwright.check.own_codes import OWN_CODES
from trainwright.check.registry import Rule, all_rules

DOCS = Path(__file__).parents[1] / "docs"
FAMILIES_PAGE = Path("train/families.md")
FRAMEWORKS_PAGE = Path("frameworks.md")
SCHEDULERS_PAGE = Path("run/schedulers.md")
CORPUS = Path(__file__).parents[1] / "tests/check/corpus"
JUDGEMENTS = (CORPUS / "judgements.csv", CORPUS / "first_sight.csv")
BLIND = CORPUS / "blind_proofs.csv"
FOLDERS = ("rules", "reference", "reference/verbs")  # all pages in them are written here
FAMILIES = {
    "BEN": "Benchmarks", "CAP": "Capacity", "CFG": "Configuration", "CFN": "CloudFormation", "DSP": "DeepSpeed",
    "EKS": "EKS", "ENV": "Environment variables", "HYP": "HyperPod", "IMG": "Images", "JOB": "Jobs",
    "K8S": "Kubernetes", "NET": "Network", "PYT": "Training scripts", "SEC": "Security", "SHL": "Shell scripts",
    "SLU": "Slurm settings", "SPC": "Specs", "STO": "Storage", "TFM": "Terraform",
}  # fmt: skip
LANGUAGES = {
    ".yaml": "yaml", ".json": "json", ".sh": "bash", ".sbatch": "bash", ".dockerfile": "dockerfile",
    ".conf": "ini", ".tf": "hcl", ".tfvars": "hcl",
}  # fmt: skip


def page(rules: list[Rule]) -> str:
    """One rule's page: what it says, what it says further with facts of AWS or of a node, then an example to avoid and
    the one to use instead."""
    rule = rules[0]
    needs = ", ".join(r.needs for r in rules)
    title, _, body = rule.document.partition("\n")
    parts = [
        f"# {rule.code}",
        f"**{title}**",
        f"Level: {rule.level}. Needs: {needs}. {_seen(rule.code)}".strip(),
        body.strip(),
        *(part for other in rules[1:] for part in _further(other)),
        *_example(rule.code),
    ]
    if rule in OWN_CODES:
        return "\n\n".join(parts) + "\n"
    silence = f"Silence it on one line with `# trainwright: ignore[{rule.code}] the reason`."
    return "\n\n".join([*parts, silence]) + "\n"


def _further(rule: Rule) -> list[str]:
    """What the half of a rule says that is run with `--aws` or `--node` only."""
    title, _, body = rule.document.partition("\n")
    return [f"## With --{rule.needs}", f"**{title}**", body.strip()]


def _seen(code: str) -> str:
    """How the rule's findings on public files were judged, or that it is proven on a blind file."""
    useful = useful_findings()[code]
    if useful:
        return f"Findings on public files that were judged useful: {useful}."
    return "Proven on a file whose author had not seen the rule." if code in blind_proofs() else ""


def _example(code: str) -> list[str]:
    for bad in (p for p in examples(code) if p.name.startswith("bad")):
        good = bad.with_name(bad.name.replace("bad", "good", 1))
        if good.exists():
            language = _language(bad)
            return [
                "## Example", _fenced(bad, language), *_beside(bad, []), "## Use instead", _fenced(good, language),
                *_beside(good, companions(bad)),
            ]  # fmt: skip
    return []


def _beside(example: Path, shown: list[Path]) -> list[str]:
    """The files beside an example that it depends on, but those that are shown."""
    files = [path for path in companions(example) if path not in shown]
    return [part for path in files for part in (f"Beside it, `{path.name}`:", _fenced(path, _language(path)))]


def _language(path: Path) -> str:
    return "dockerfile" if path.name.endswith("Dockerfile") else LANGUAGES.get(path.suffix.lower(), "text")


def _fenced(path: Path, language: str) -> str:
    return f"```{language}\n{without_header(path.read_text(encoding='utf-8'))}\n```"


def table(rules: list[Rule]) -> str:
    """The index: every rule in a line, by family."""
    lines = [
        "# Rules",
        "",
        "Written from the rules by `make docs`. `trainwright check --explain CODE` prints a page. The last column",
        "counts the findings on public files that were judged useful (`tests/check/corpus/`). *blind*: no public",
        "file has shown the rule yet; it is proven on a file with the mistake and on its corrected twin, written by",
        "somebody who had read the first paragraph of its page, not the rule (`tests/check/blind/`).",
        "",
        *unseen(rules),
        "",
    ]
    judged = useful_findings()
    family = ""
    for rule in rules:
        if rule.code[:3] != family:
            family = rule.code[:3]
            lines += [
                "",
                f"## {FAMILIES.get(family, family)}",
                "",
                "| code | level | needs | what | judged useful, or proven blind |",
                "| --- | --- | --- | --- | --- |",
            ]
        title = rule.title.replace("|", "\\|")
        count = judged[rule.code] or ("*blind*" if rule.code in blind_proofs() else "")
        lines.append(f"| [{rule.code}]({rule.code}.md) | {rule.level} | {rule.needs} | {title} | {count} |")
    lines += ["", "## Findings of `check` itself", "", "| code | level | what |", "| --- | --- | --- |"]
    lines += [f"| [{own.code}]({own.code}.md) | {own.level} | {own.title} |" for own in OWN_CODES]
    return "\n".join(lines) + "\n"


def unseen(rules: list[Rule]) -> list[str]:
    """The rules that no public file has shown to be useful, by the reason."""
    judged = useful_findings()
    without = [rule for rule in rules if not judged[rule.code]]
    needing = {rule.code for rule in all_rules() if rule.needs == "offline"}
    own = [rule.code for rule in without if rule.code.startswith("SPC")]
    facts = [rule.code for rule in without if rule.code not in needing]
    others = [rule.code for rule in without if rule.code not in {*own, *facts}]
    return [
        "Rules that no public file has shown to be useful:",
        "",
        f"- about our own spec, which no public file is: {', '.join(own)};",
        f"- about facts of AWS or of a node, which no file holds: {', '.join(facts)};",
        f"- not yet met in a public file: {', '.join(others)}.",
    ]


@cache
def useful_findings() -> Counter[str]:
    """Findings on public files that were judged useful, by rule. A finding may be in both tables: it counts once."""
    places = set()
    for table_ in JUDGEMENTS:
        with table_.open(encoding="utf-8") as file:
            useful = (row for row in csv.DictReader(file) if row["verdict"] == "useful")
            places |= {(row["digest"], row["line"], row["code"]) for row in useful}
    return Counter(code for _, _, code in places)


@cache
def blind_proofs() -> set[str]:
    """The rules that are proven on a file whose author had not seen the rule."""
    with BLIND.open(encoding="utf-8") as file:
        return {row["code"] for row in csv.DictReader(file)}


def rule_pages() -> dict[str, str]:
    """File name -> page: one per rule, and the index."""
    by_code: dict[str, list[Rule]] = {}
    for rule in sorted(all_rules(), key=lambda one: (one.code, one.needs != "offline")):
        by_code.setdefault(rule.code, []).append(rule)
    pages = {f"{code}.md": page(same) for code, same in by_code.items()}
    pages |= {f"{own.code}.md": page([own]) for own in OWN_CODES}
    pages["index.md"] = table([same[0] for same in by_code.values()])
    return pages


def all_pages() -> dict[Path, str]:
    """Every generated page by its path under docs/."""
    pages = {Path("rules") / name: text for name, text in rule_pages().items()}
    pages |= {Path("reference/verbs") / name: text for name, text in verb_pages().items()}
    return {
        **pages,
        Path("reference/spec.md"): spec_page(),
        FAMILIES_PAGE: families_page(),
        FRAMEWORKS_PAGE: frameworks_page(),
        SCHEDULERS_PAGE: schedulers_page(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only report whether the pages are up to date")
    arguments = parser.parse_args()
    pages = all_pages()
    present = {
        path.relative_to(DOCS): path.read_text("utf-8") for name in FOLDERS for path in DOCS.glob(f"{name}/*.md")
    }
    single = (FAMILIES_PAGE, FRAMEWORKS_PAGE, SCHEDULERS_PAGE)
    present |= {page: (DOCS / page).read_text("utf-8") for page in single if (DOCS / page).exists()}
    changed = sorted(path for path in {*pages, *present} if pages.get(path) != present.get(path))
    if arguments.check:
        if changed:
            print(f"out of date: {', '.join(map(str, changed))}; run `make docs`", file=sys.stderr)
        return 1 if changed else 0
    for path in changed:
        (DOCS / path).parent.mkdir(parents=True, exist_ok=True)
        if path in pages:
            (DOCS / path).write_text(pages[path], encoding="utf-8")
        else:
            (DOCS / path).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
