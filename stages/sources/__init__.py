"""Reading raw sources: from what a spec says to Arrow batches of documents with every bad row accounted for.

`spec` says what to read, `listing` finds the files, `identity` digests them, `units` cuts them into tasks and
`read` turns a task into batches. The other modules are one format or one concern each.
"""
