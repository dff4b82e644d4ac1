"""The study: every system at the same proven epsilon for a client's whole run. See docs/study.md.

    FEDLDP_DATA=... python -m benchmarks.study RESULTS.jsonl --budget 60     measure for an hour
    python -m benchmarks.study RESULTS.jsonl --table docs/study.md           its tables
    python -m benchmarks.study RESULTS.jsonl --plot docs                     its charts

RESULTS.jsonl has a line for each run, and is only added to: a study that was stopped goes on where
it was, and what it holds is not run twice.
"""
