//! Every limit of the store, with its default.

/// Total size of the entries before the least recently used are deleted.
pub const CAPACITY_BYTES: u64 = 2 << 30;

/// When entries are evicted, this share of the capacity is left filled, so that not every start evicts.
pub const KEEP_PERCENT: u64 = 90;

/// Largest module that is read.
pub const MODULE_MAX_BYTES: u64 = 1 << 30;

/// Largest artifact that the compiler may write.
pub const ARTIFACT_MAX_BYTES: u64 = 4 << 30;

/// CPU time of the compiler, in seconds, all its threads together: an outer bound, its own limits are lower.
pub const COMPILER_CPU_SECONDS: u64 = 1800;

/// Bytes of one line of the compiler's messages that are kept.
pub const MESSAGE_LINE_BYTES: usize = 4096;

/// Lines of the compiler's messages that are kept.
pub const MESSAGE_LINES: usize = 32;

/// Index links before the older half is deleted. A link is a name, not a copy: losing one costs a hash of its module.
pub const INDEX_LINKS: usize = 4096;

/// A file changed less than this long ago may be changed again without its times showing it: clocks of file systems tick coarsely
/// (FAT: 2 s). Such a file is not indexed.
pub const RACY_NS: i128 = 2_000_000_000;

/// An entry's time of last use is renewed at most this often, so that a start usually writes nothing.
pub const TOUCH_SECONDS: i64 = 24 * 60 * 60;

/// Temporary and lock files older than this belong to processes that died.
pub const STALE_SECONDS: i64 = 60 * 60;

/// Attempts to lock an entry whose lock file is replaced by others again and again.
pub const LOCK_ATTEMPTS: u32 = 1000;
