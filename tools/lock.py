"""Read requirements.lock and find what it lacks, on every Python and platform it serves."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_PLATFORMS = {
    "linux": ("posix", "Linux", "x86_64"),
    "darwin": ("posix", "Darwin", "arm64"),
    "win32": ("nt", "Windows", "AMD64"),
}
ENVIRONMENTS = [
    {
        "python_version": python,
        "python_full_version": f"{python}.1",
        "implementation_name": "cpython",
        "implementation_version": f"{python}.1",
        "platform_python_implementation": "CPython",
        "sys_platform": platform,
        "os_name": os_name,
        "platform_system": system,
        "platform_machine": machine,
    }
    for platform, (os_name, system, machine) in _PLATFORMS.items()
    for python in ("3.11", "3.12", "3.13", "3.14")
]


class Pin(NamedTuple):
    """A line of the lock: one distribution at one version."""

    requirement: Requirement

    @property
    def name(self) -> str:
        """The normalized name of the distribution."""
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        """The one version that is locked."""
        (specifier,) = self.requirement.specifier
        assert specifier.operator == "==", f"{self.requirement} is not pinned with =="
        return specifier.version

    @property
    def key(self) -> str:
        """The name by which the record knows the distribution."""
        return key(self.name, self.version)

    def applies(self, environment: dict[str, str]) -> bool:
        """Return whether the line is for this environment."""
        marker = self.requirement.marker
        return marker is None or marker.evaluate(environment)


def key(name: str, version: str) -> str:
    """Return what names one version of a distribution, however its name is spelled."""
    return f"{canonicalize_name(name)}=={version}"


def locked(path: Path) -> list[Pin]:
    """Return the pins of a lock file."""
    lines = path.read_text().splitlines()
    return [Pin(Requirement(line.removesuffix(" \\"))) for line in lines if line and line[0] not in " #"]


def relevant(requires: Iterable[str], extras: set[str]) -> list[str]:
    """Return the requirements that hold in some environment, without extras or with one of `extras`."""
    return sorted(
        text
        for text in requires
        if any(_holds(Requirement(text), extras, environment) for environment in ENVIRONMENTS)
    )


def gaps(pins: list[Pin], record: dict[str, list[str]], roots: list[Requirement]) -> Iterator[str]:
    """Yield a sentence for every requirement that the lock does not satisfy somewhere."""
    for environment in ENVIRONMENTS:
        where = f"Python {environment['python_version']} on {environment['sys_platform']}"
        present = [pin for pin in pins if pin.applies(environment)]
        names = [pin.name for pin in present]
        twice = {name for name in names if names.count(name) > 1}
        yield from (f"{name} is locked twice for {where}" for name in sorted(twice))
        by_name = {pin.name: pin for pin in present}
        wanted = [
            ("partialbayes", requirement)
            for requirement in roots
            if _holds(requirement, set(), environment)
        ]
        for pin in present:
            for requirement in map(Requirement, record[pin.key]):
                if _holds(requirement, pin.requirement.extras, environment):
                    wanted.append((pin.key, requirement))
        for source, requirement in wanted:
            found = by_name.get(canonicalize_name(requirement.name))
            if found is None:
                yield f"{source} requires {requirement}, which is not in the lock for {where}"
            elif not requirement.specifier.contains(found.version, prereleases=True):
                yield f"{source} requires {requirement}, but {found.key} is locked for {where}"
            elif not requirement.extras <= found.requirement.extras:
                yield f"{source} requires {requirement}, but {found.key} is locked without its extras"


def _holds(requirement: Requirement, extras: set[str], environment: dict[str, str]) -> bool:
    """Return whether a requirement holds in an environment, without extras or with one of `extras`."""
    marker = requirement.marker
    return marker is None or any(
        marker.evaluate({**environment, "extra": extra}) for extra in ("", *extras)
    )
