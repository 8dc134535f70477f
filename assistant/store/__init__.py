"""One SQLite file that is the state: incidents, evidence, diagnoses, calls, approvals and the audit chain."""
