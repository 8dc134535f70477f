"""That a site has a policy of its own, kept over restarts: a file that vanished is then missing, and not the shipped policy."""

from __future__ import annotations

from assistant.store.audit import AuditRows
from assistant.store.rows import clean

__all__ = ["PolicyRows"]

_NAME = "site_policy"


class PolicyRows(AuditRows):
    """The policy's part of the store."""

    def site_policy(self) -> str | None:
        """Return the file of the site's policy that was in force last, None where there never was one or it was given up."""
        row = self.row("SELECT value FROM properties WHERE name = ?", [_NAME])
        return None if row is None else str(row["value"])

    def keep_site_policy(self, path: str) -> None:
        """Keep the file of the site's policy that is in force now; a watch that stands by writes it as well."""
        with self.unfenced(), self.transaction() as connection:
            before = self.site_policy()
            if before == path:
                return
            connection.execute("INSERT OR REPLACE INTO properties (name, value) VALUES (?, ?)", [_NAME, path])
            self.record("policy.site", by="policy", why="the site has a policy of its own", detail={"file": path, "before": before})

    def give_up_site_policy(self, *, by: str, why: str = "") -> str | None:
        """Forget by a person's word that the site has a policy, and return its file; None where the store knows of none."""
        with self.transaction() as connection:
            before = self.site_policy()
            if before is not None:
                connection.execute("DELETE FROM properties WHERE name = ?", [_NAME])
                why = clean(why) or "the shipped policy is accepted"
                self.record("policy.shipped", by=by, why=why, detail={"before": before})
            return before
