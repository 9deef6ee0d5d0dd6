"""Write the pages of the documentation that are made from the code: one page a rule, and their table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trainwright.check.examples import examples, without_header
from trainwright.check.registry import Rule, all_rules

FOLDER = Path(__file__).parents[1] / "docs/rules"
FAMILIES = {
    "BEN": "Benchmarks", "CAP": "Capacity", "CFG": "Configuration", "CFN": "CloudFormation", "EKS": "EKS",
    "ENV": "Environment variables", "HYP": "HyperPod", "IMG": "Images", "JOB": "Jobs", "K8S": "Kubernetes",
    "NET": "Network", "SEC": "Security", "SHL": "Shell scripts", "SLU": "Slurm settings", "STO": "Storage",
}  # fmt: skip
LANGUAGES = {".yaml": "yaml", ".json": "json", ".sh": "bash", ".sbatch": "bash", ".dockerfile": "dockerfile"}


def page(rules: list[Rule]) -> str:
    """One rule's page: what it says, then an example to avoid and the one to use instead."""
    rule = rules[0]
    needs = ", ".join(r.needs for r in rules)
    title, _, body = rule.document.partition("\n")
    parts = [
        f"# {rule.code}",
        f"**{title}**",
        f"Level: {rule.level}. Needs: {needs}.",
        body.strip(),
        *_example(rule.code),
    ]
    silence = f"Silence it on one line with `# trainwright: ignore[{rule.code}] the reason`."
    return "\n\n".join([*parts, silence]) + "\n"


def _example(code: str) -> list[str]:
    for bad in (p for p in examples(code) if p.name.startswith("bad")):
        good = bad.with_name(bad.name.replace("bad", "good", 1))
        if good.exists():
            language = LANGUAGES.get(bad.suffix.lower(), "text")
            return [
                "## Example", _fenced(bad, language), "## Use instead", _fenced(good, language),
            ]  # fmt: skip
    return []


def _fenced(path: Path, language: str) -> str:
    return f"```{language}\n{without_header(path.read_text(encoding='utf-8'))}\n```"


def table(rules: list[Rule]) -> str:
    """The index: every rule in a line, by family."""
    lines = [
        "# Rules",
        "",
        "Made from the rules themselves by `make docs`. `trainwright check --explain CODE` prints a page.",
        "",
    ]
    family = ""
    for rule in rules:
        if rule.code[:3] != family:
            family = rule.code[:3]
            lines += [
                "",
                f"## {FAMILIES.get(family, family)}",
                "",
                "| code | level | needs | what |",
                "| --- | --- | --- | --- |",
            ]
        title = rule.title.replace("|", "\\|")
        lines.append(f"| [{rule.code}]({rule.code}.md) | {rule.level} | {rule.needs} | {title} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """Every generated page by file name."""
    rules = list(all_rules())
    by_code: dict[str, list[Rule]] = {}
    for rule in rules:
        by_code.setdefault(rule.code, []).append(rule)
    made = {f"{code}.md": page(same) for code, same in by_code.items()}
    made["index.md"] = table([same[0] for same in by_code.values()])
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the pages are up to date")
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = pages()
    stale = {n for n, text in made.items() if not (FOLDER / n).exists() or (FOLDER / n).read_text("utf-8") != text}
    extra = {path.name for path in FOLDER.glob("*.md")} - set(made)
    if arguments.check:
        if stale or extra:
            print(f"out of date: {', '.join(sorted(stale | extra))}; run `make docs`", file=sys.stderr)
        return 1 if stale or extra else 0
    for name in stale:
        (FOLDER / name).write_text(made[name], encoding="utf-8")
    for name in extra:
        (FOLDER / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
