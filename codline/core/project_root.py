"""The root of a codline project: the directory with dvc.yaml and params.yaml, in which commands are run."""

from pathlib import Path

from codline.core.errors import UserError

FILES = ("dvc.yaml", "params.yaml")


def require_project_root() -> None:
    """Refuse any other directory before anything is created in it; in a subdirectory of a project, name the root."""
    if Path(FILES[0]).exists():
        return
    above = (folder for folder in Path.cwd().parents if all((folder / name).is_file() for name in FILES))
    root = next(above, None)
    where = "the root of a codline project" if root is None else f"{root}, the root of this codline project"
    raise UserError(f"{FILES[0]}: not found; run this from {where}")
