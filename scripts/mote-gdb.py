"""gdb: symbols and line numbers of the artifacts that a process has mapped.

    (gdb) source scripts/mote-gdb.py
    (gdb) mote-symbols

Line numbers are byte offsets in the wasm file. Say it again after more modules were loaded.
"""

import gdb

NOTE_OFFSET = 0x240 + 12  # the owner's name in the note of an artifact's first page


class MoteSymbols(gdb.Command):
    """Load symbols of every Mote artifact that the process has mapped."""

    def __init__(self):
        super().__init__("mote-symbols", gdb.COMMAND_FILES)
        self.known = set()

    def invoke(self, argument, from_tty):
        pid = gdb.selected_inferior().pid
        with open(f"/proc/{pid}/maps") as maps:
            for line in maps:
                span, access, offset, _, inode, *path = line.split(maxsplit=5)
                if "x" not in access or inode == "0":
                    continue
                start = int(span.split("-")[0], 16) - int(offset, 16)
                # Reaches files without a name too: artifacts that are in memory only.
                file = f"/proc/{pid}/map_files/{span}"
                if start not in self.known and is_artifact(file):
                    gdb.execute(f"add-symbol-file {file} -o {start:#x}")
                    self.known.add(start)


def is_artifact(path):
    try:
        with open(path, "rb") as file:
            file.seek(NOTE_OFFSET)
            return file.read(5) == b"Mote\0"
    except OSError:
        return False


MoteSymbols()
