"""What the campaign has tried and found."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Findings:
    """Counts of what was tried, and the findings, which are printed at once."""

    title: str
    tried: dict[str, int] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)

    def count(self, what: str, number: int = 1) -> None:
        """Count something that was tried."""
        self.tried[what] = self.tried.get(what, 0) + number

    def add(self, finding: str) -> None:
        """Add and print a finding."""
        self.found.append(finding)
        print(f"FOUND: {finding}", flush=True)

    def summary(self) -> str:
        """Return one line."""
        tried = ", ".join(f"{count:,} {what}" for what, count in self.tried.items())
        return f"{self.title}: {tried or 'nothing tried'}; {len(self.found)} findings"
