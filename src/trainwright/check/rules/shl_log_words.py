"""SHL: what comments, a README and neighbouring scripts say about a directory for logs: that it must exist, who makes
it, who submits the job. People write it in many languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

from trainwright.check import around
from trainwright.check.model import File, ShellScript

_MADE = re.compile(
    r"\bexist|creat|\bbe there\b|\bma(k|d)e\b|mkdir|\bcré|\bcrea|\bcri(e|ar)\b|anleg|angelegt|erstell|vorhanden|"
    r"созда|существ|创建|創建|新建|建立|建好|存在|作成|作って|만들|생성|tạo|oluştur|utw[oó]rz|aanmaken|skapa",
    re.IGNORECASE,
)
_BEFORE = re.compile(
    r"submi|sbatch|before|\bfirst\b|\bmust\b|manual|\b(needs?|has) to\b|make sure|ensure|otherwise|\badvance\b|already|"
    r"\bonce\b|set-?up|won'?t|will not|does ?n[o']t|do not|cannot|can'?t|\bantes\b|\bavant\b|\bdoit\b|\bdebe|\bdeve|"
    r"primer|prima\b|\bvor|\bmuss|zuvor|перед|сначала|должн|нужно|提交|之前|先|必须|必須|需要|确保|事前|前に|必要|予め|"
    r"먼저|전에|필요|trước|önce|najpierw|przed",
    re.IGNORECASE,
)
# What is done before the job, whatever stands below the comment.
_SUBMISSION = re.compile(
    r"submi|sbatch|manual|too late|login node|--output|\b(sym|soft)-?links?\b|"
    r"提交|投入|제출|soum|absend|einreich|lanzar|enviar",
    re.IGNORECASE,
)
_A_LOG_DIRECTORY = re.compile(
    r"\b(log|logs|logging|output|out|stdout|slurm)[- _/]*(dir\b|dirs\b|director|folder|path)|"
    r"\b(this|that|these|the) (log |logs |output |slurm |above |target )?(dir\b|director|folder)|"
    r"日志.?(目录|文件夹|路径)|ログ.?(ディレクトリ|フォルダ)|로그 ?(폴더|디렉)",
    re.IGNORECASE,
)
# Of the directory itself, by its name.
_NEEDED = re.compile(
    r"\brequire|prerequisite|\bneeds?\b|forget|must be|has to be|\bpresent\b|resolves?\b|\blives?\b|ignored|"
    r"\b(sym|soft)-?links?\b",
    re.IGNORECASE,
)
_OTHERS = re.compile(
    r"\b(submitted|launched|called|queued|invoked|dispatched) (automatically )?(by|via|through) "
    r"(?!sbatch|slurm\b|srun|torchrun|accelerate|deepspeed|mpirun|python)|"
    r"\b(submitted|launched|called|queued|invoked|started) from (a|an|another|\S+\.(sh|py))\b|"
    r"\b(by|from|via|through|with|use|using) (the|a|its) (\w+ )?wrapper\b|auto-?generated|"
    r"\bgenerated (by|from) (?!chatgpt|gpt|claude|copilot|gemini|an? (ai|llm))|"
    r"\b(do not|don'?t|never|not meant to be|should not be) (be )?(run|call|sbatch|submit|use|launch)\w* "
    r"(this (\w+ )?)?directly",
    re.IGNORECASE,
)
_STARTER = re.compile(r"\b((submit|launch|queue|dispatch|sweep|run_(all|sweep|jobs|many|exp|grid))\w*\.(sh|py|bash))\b")
_USED = re.compile(r"\busage\b[^\n]*?(?:\./|\bbash |\bsh |\bpython3? )((?:[\w.-]+/)*[\w.-]+\.(?:sh|py))", re.IGNORECASE)
_PASSED = re.compile(r"\bsbatch\b[^\n]*\s(-o\b|--output\b)")
_SETS_UP = re.compile(r"set_?up|install|init|prepare|bootstrap|make_?dirs|create_?(dirs|folders)", re.IGNORECASE)
_MAKES_VARIABLE = re.compile(
    r"\bmkdir\b[^\n;&|]*\$|\bmakedirs\(\s*[a-z_]|\w\.mkdir\(|\bmkdir\(\s*[a-z_]", re.IGNORECASE
)
_SUBMITS = re.compile(r"\b(sbatch|submitit)\b")
_NEAR = 4  # lines between a comment and the command that it explains


def explained(script: ShellScript, folder: str) -> bool:
    """Whether a comment says that the directory must be there (`submit from the root, so that logs/ exists`). One that
    explains a `mkdir` of the job does not count: that comes too late."""
    logs = {value.span.line for name, value in script.directives if name in ("output", "error")}
    return any(
        _says_so(text, folder, at_log=line in logs) and (_SUBMISSION.search(text) or not _explains_mkdir(script, line))
        for line, text in _comments(script)
    )


def _explains_mkdir(script: ShellScript, line: int) -> bool:
    """Whether the command below a comment makes directories."""
    last, programs = script.derived(_places)
    if last >= line:
        return False
    below = (programs[number] for number in range(line, line + _NEAR + 1) if number in programs)
    return next(below, "") == "mkdir"


def _places(script: ShellScript) -> tuple[int, dict[int, str]]:
    """The line of the last directive, and the first program of each line."""
    programs: dict[int, str] = {}
    for command in script.commands:
        if command.program not in ("cd", "echo"):
            programs.setdefault(command.span.line, command.program)
    return max((value.span.line for _, value in script.directives), default=0), programs


def has_submitter(file: File, script: ShellScript) -> bool:
    """Whether a comment says that another script or program submits this one, or that the log goes elsewhere."""
    own = Path(file.path).name
    run_here = {Path(word.value).name for command in script.commands for word in command.words}
    for _, text in _comments(script):
        if _OTHERS.search(text) or _PASSED.search(text):
            return True
        named = [match[1] for match in _STARTER.finditer(text)] + [Path(m[1]).name for m in _USED.finditer(text)]
        if any(name != own and name not in run_here for name in named):
            return True
    return False


def made_around(file: File, folder: str) -> str:
    """Who makes the directory, by the texts of the repository: `before the job`, `perhaps`, or nobody."""
    if file.path == "<stdin>":
        return ""
    path = Path(file.path).absolute()
    answer, passed = _makers(str(path.parent), folder, around.state(str(path.parent)))
    return answer or ("perhaps" if any(path.name in line for line in passed) else "")


@lru_cache(maxsize=256)
def _makers(directory: str, folder: str, _state: tuple[int, ...]) -> tuple[str, tuple[str, ...]]:
    """The answer for the scripts of a directory, and lines that submit with another log."""
    made, shown_in_tree = _making(folder), re.compile(rf"[├└].*\b{_name(folder)}/")
    answer, passed = "", list[str]()
    for path, text in around.texts(directory):
        if path.name == ".gitignore":
            if re.search(rf"^!.*\b{_name(folder)}/", text, re.MULTILINE):
                return "before the job", ()  # `!logs/.gitkeep`: the repository has it
            continue
        if around.is_document(path):
            if _documented(text, folder):
                return "before the job", ()
            perhaps = shown_in_tree.search(text) is not None
        elif _is_batch_script(text):
            perhaps = made.search(text) is not None and not _logs_there(text, folder)  # an earlier job, of a chain
        else:
            makes, submits = made.search(text) is not None, _SUBMITS.search(text) is not None
            if makes and submits:
                return "before the job", ()
            sets_up = path.suffix != ".py" and _SETS_UP.search(path.stem) is not None
            sets_up = sets_up or path.name in around.RUNNERS
            perhaps = (sets_up or submits) and (makes or _makes_variable(text, folder))
            passed += [line for line in text.split("\n") if _PASSED.search(line)]
        if perhaps:
            answer = "perhaps"
    return answer, tuple(passed)


def _is_batch_script(text: str) -> bool:
    """Whether a script has directives of its own; those of a job that it writes come behind its first command."""
    head = (line for line in text.split("\n") if line.strip())
    return any(line.startswith("#SBATCH") for line in takewhile(lambda line: line.lstrip().startswith("#"), head))


def _logs_there(text: str, folder: str) -> bool:
    """Whether a batch script writes its own log there: it has the same mistake."""
    return re.search(rf"^#SBATCH\b.*(?<![\w.-]){_name(folder)}/", text, re.MULTILINE) is not None


def _makes_variable(text: str, folder: str) -> bool:
    """`LOGS=logs` and `mkdir -p $LOGS`, `for dir in data logs`, in the words of a shell, of make or of Python."""
    name = _name(folder)
    given = re.search(
        rf"=[^\n=]*(?<![\w.-]){name}(?![\w.-])|\bfor \w+ in\b[^\n;]*[ \"'/]{name}\b|^{name}/?[ ]*:",
        text,
        re.MULTILINE,
    )
    return given is not None and _MAKES_VARIABLE.search(text) is not None


def _comments(script: ShellScript) -> Iterator[tuple[int, str]]:
    """Each comment, also with the one on the line above it, as a sentence goes on; of a directive what stands behind
    its value."""
    kept: dict[int, str] = {}
    for line, text in sorted(script.comments.items()):
        kept[line] = text.partition("#")[2] if text.startswith("SBATCH") else text
    for line, text in kept.items():
        if text.strip():
            yield line, text
        if text.strip() and kept.get(line - 1):
            yield line, f"{kept[line - 1]} {text}"


def _name(folder: str) -> str:
    return re.escape(folder.removeprefix("./").split("%")[0].rstrip("/"))


def _says_so(text: str, folder: str, at_log: bool) -> bool:
    """Whether a comment says that the directory must be made, or shows the command; `at_log`: it stands behind it."""
    named = re.search(rf"(?<![A-Za-z0-9_/.-])(\./)?{_name(folder)}(?![A-Za-z0-9_])", text)
    if named and re.search(r"\bmkdir\b", text):
        return True
    directory = named and re.search(rf"{_name(folder)}(/|`|'|\"| dir| folder|\s*$)", text)
    if directory and _NEEDED.search(text):
        return True
    about = at_log or named is not None or _A_LOG_DIRECTORY.search(text) is not None
    return about and _MADE.search(text) is not None and _BEFORE.search(text) is not None


def _documented(text: str, folder: str) -> bool:
    """The same of a document, which says `logs` of much else: there it must be named as a directory."""
    name = _name(folder)
    directory = re.compile(
        rf"(?<![\w/.-])({name}/|`(\./)?{name}/?`|{name}[`\"']? (dir|folder)|"
        rf"(director(y|ies)|folders?) (\w+ )?[`\"']?{name}\b)"
    )
    shown = re.compile(rf"\bmkdir\b[^\n]*(?<![\w/.-]){name}(?![\w-])")
    if shown.search(text):
        return True
    sentences = (part for line in text.split("\n") if directory.search(line) for part in re.split(r"[.;|]\s", line))
    return any(directory.search(part) and _MADE.search(part) and _BEFORE.search(part) for part in sentences)


def _making(folder: str) -> re.Pattern[str]:
    """A command of a shell or of Python that makes the directory, perhaps among others."""
    name = rf"(?<![\w.-]){_name(folder)}(?![\w.-])"
    return re.compile(
        rf"mkdir\b[^\n;&|]*{name}|makedirs\([^\n]*{name}|Path\([^\n]*{name}[^\n]*\.mkdir\(|install -d[^\n]*{name}"
    )
