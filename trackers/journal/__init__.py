"""A run on disk: its directory, its streams of records, who writes and delivers it, and how it stands.

The format, for whoever reads a run without this package, or changes it::

    runs/<project>/<run id>/
      run.json                     who the run is: id, name, config, attempts, host. Replaced whole, by rename
      streams/rank-0.1.jsonl       what training logged: writer, its number, the attempt
      streams/rank-0.1.sums        checksums of that stream's lines (trackers.journal.checksums)
      streams/node-0.1.jsonl       samples of a machine, and the ending that training couldn't write
      streams/reducer-0.1.jsonl    values across ranks; console-, alerts-, edits-: what was printed, said, changed later
      delivery/<tracker>.json      how far a tracker is, and what it needs to go on. Replaced whole
      delivery/<tracker>.order     in which order its delivery took the streams' records (relay.delivery.merge_order)
      delivery/<tracker>.rejected.jsonl   records that the tracker refused for good
      media/<hash>.<suffix>        contents of images, tables, artifacts; a record names the path
      console/                     what processes print, until the relay has put it into the journal
      live/<attempt>/<number>      links to files that are kept at the end (trackers.journal.live_files)
      code-1.json                  what exactly ran, by attempt (trackers.provenance)
      *.lease                      who works on the run, with a beat (trackers.journal.lease)
      messages.jsonl, relay.log    what was said to the user, and what the relay says of itself

**A stream** is JSON lines in UTF-8, one record a line (trackers.records: kinds, fields, how NaN is written). It only
grows, has one writer, and each record, or several together, is one ``write`` to a file opened with O_APPEND: what
``write`` returned from survives the death of every process, not that of the machine. Nothing is synced to the disk.

**What a reader does.** It takes complete lines only. What follows the last newline is on its way, or was left by a
writer that died, and is none of the run's. A complete line that is no record is skipped and counted; where a line
begins with a piece of another, because the file was cut within that one, the record at its end counts. NUL bytes at the
end are data on its way for 10 s, then damage. An unknown kind is skipped, unknown fields are ignored: an older release
reads a newer one's run. A record's id is its stream's name, its line's offset and its time.

**What a writer does.** The first one of an attempt creates its stream exclusively: that is its claim on the number. One
that opens an existing stream cuts the torn tail off first. It writes the attempt's ``start`` before anything else, then
``run.json``; a run whose ``run.json`` is lost or damaged has its identity in the newest ``start``. What the disk
refuses waits in memory, in order. A stream that was deleted or replaced is put back whole from the open file.

**Which records count** (trackers.journal.attempts). Of an attempt all, up to the moment at which the next one that has
a ``start`` began, by its own clock where that is another machine's; and those at steps above ``from_step`` of any later
attempt don't. Edits count whenever they were made. Streams have no common order but their records' times.

**After a crash** there is nothing to recover: a stream is right up to its last newline at any moment, and files that
are replaced are old or new. tests/journal/test_format.py holds this page against an abstract journal, under random
operations, crashes and cuts, and with a stream that ends at each of its bytes.
"""
