"""The repository's files as git knows them."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tracked(*patterns: str) -> list[Path]:
    """Returns tracked files of these patterns; in a copy without git, those on disk that no tool has left behind."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        left = {"build", "dist", "__pycache__"}
        found = [
            path
            for pattern in patterns
            for path in ROOT.rglob(pattern)
            if not any(part.startswith(".") or part in left for part in path.relative_to(ROOT).parts[:-1])
        ]
    return sorted(path for path in found if path.is_file())


def python_files() -> list[Path]:
    """Returns every Python file that people write; the stubs are generated."""
    return [path for path in tracked("*.py") if ROOT / "headrace/v1" not in path.parents]


def name_of(path: Path) -> str:
    """Returns the path within the repository."""
    return path.relative_to(ROOT).as_posix()
