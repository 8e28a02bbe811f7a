"""Changes of a landing zone on local folders: unmounted, moved, and spelled in other ways."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lakes import changed

from lakeproof.settings import Settings
from lakeproof.storage.local import local_path

Alias = Callable[[Settings], Settings]


@contextmanager
def unmounted(settings: Settings, empty: bool = False) -> Iterator[None]:
    """Move the landing zone away, like a missing mount: no folder at all, or an `empty` mount point."""
    landing = _landing(settings)
    away = landing.with_name(f"{landing.name}.away")
    landing.rename(away)
    if empty:
        landing.mkdir()
    try:
        yield
    finally:
        if landing.exists():
            shutil.rmtree(landing)
        away.rename(landing)


def moved(settings: Settings, to: Path) -> Settings:
    """Move the landing zone to another folder; return settings with the new path."""
    _landing(settings).rename(to)
    return changed(settings, LAKE_LANDING=str(to))


def by_dots(settings: Settings) -> Settings:
    """``landing/../landing``."""
    landing = _landing(settings)
    return changed(settings, LAKE_LANDING=f"{landing}/../{landing.name}")


def by_uri_with_dots(settings: Settings) -> Settings:
    """``file://…/landing/../landing``."""
    landing = _landing(settings)
    return changed(settings, LAKE_LANDING=f"{landing.as_uri()}/../{landing.name}")


def by_double_slash(settings: Settings) -> Settings:
    """``…//landing``."""
    landing = _landing(settings)
    return changed(settings, LAKE_LANDING=f"{landing.parent}//{landing.name}/")


def by_link(settings: Settings) -> Settings:
    """A link to the landing zone, from somewhere else."""
    return changed(settings, LAKE_LANDING=str(_link(_landing(settings))))


def by_linked_home(settings: Settings) -> Settings:
    """A link to the lake's whole folder."""
    return changed(settings, LAKE_HOME=_link(settings.home.absolute()))


def by_relative_path(settings: Settings) -> Settings:
    """From the working directory."""
    return changed(settings, LAKE_LANDING=os.path.relpath(_landing(settings)))


def at_other_mount(settings: Settings) -> Settings:
    """Link each stream's folder below another root, like a second mount point."""
    landing = _landing(settings)
    mount = landing.parent / "mnt" / "other"
    mount.mkdir(parents=True)
    for folder in landing.iterdir():
        (mount / folder.name).symlink_to(folder)
    return changed(settings, LAKE_LANDING=str(mount))


ALIASES: tuple[Alias, ...] = (
    by_dots,
    by_uri_with_dots,
    by_double_slash,
    by_link,
    by_linked_home,
    by_relative_path,
    at_other_mount,
)


def link_in_a_circle(settings: Settings, stream: str = "events") -> None:
    """Make two folders of a stream with links to each other."""
    first, second = (_landing(settings) / stream / name for name in ("first", "second"))
    first.mkdir(parents=True)
    second.mkdir()
    (first / "to-second").symlink_to(second)
    (second / "to-first").symlink_to(first)


def _landing(settings: Settings) -> Path:
    return local_path(settings.landing.uri)


def _link(target: Path) -> Path:
    link = target.with_name(f"{target.name}.link")
    link.symlink_to(target)
    return link
