//! Where guest code lies in this process. The fault handler asks here whether a program counter is a guest's, so reading takes no
//! lock and allocates nothing; writing does both.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use mote_artifact::Artifact;

/// One range of guest code. Nodes are never freed, only used again, so that a reader can always follow the list.
struct Node {
    start: AtomicUsize,
    /// 0 while the node is free.
    end: AtomicUsize,
    /// The mapping of the whole artifact.
    mapped: AtomicUsize,
    mapped_end: AtomicUsize,
    next: *const Node,
}

// SAFETY: `next` never changes once the node is in the list; the rest is atomic.
unsafe impl Sync for Node {}
// SAFETY: as above.
unsafe impl Send for Node {}

static HEAD: AtomicPtr<Node> = AtomicPtr::new(std::ptr::null_mut());

/// What writers know: free nodes, and the artifact of each range (weak, so that a module can go).
struct Writers {
    free: Vec<&'static Node>,
    artifacts: Vec<(usize, usize, Weak<Artifact>)>,
}

static WRITERS: Mutex<Writers> = Mutex::new(Writers { free: Vec::new(), artifacts: Vec::new() });

/// Whether `pc` is in the text of a module. Safe in a signal handler.
///
/// A range that is reused at this very moment may be read half old and half new; its end is read again to notice that. A thread that
/// runs guest code keeps its own range registered, so for it the answer is always right.
pub(crate) fn is_guest(pc: usize) -> bool {
    let mut node = HEAD.load(Ordering::Acquire).cast_const();
    // SAFETY: nodes in the list are never freed.
    while let Some(it) = unsafe { node.as_ref() } {
        let end = it.end.load(Ordering::Acquire);
        if pc < end && pc >= it.start.load(Ordering::Acquire) && it.end.load(Ordering::Acquire) == end {
            return true;
        }
        node = it.next;
    }
    false
}

/// Whether an address is in the mapping of a module's artifact. Safe in a signal handler, as [`is_guest`] is: whoever reads an artifact
/// keeps it.
pub(crate) fn is_artifact(address: usize) -> bool {
    let mut node = HEAD.load(Ordering::Acquire).cast_const();
    // SAFETY: nodes in the list are never freed.
    while let Some(it) = unsafe { node.as_ref() } {
        let end = it.mapped_end.load(Ordering::Acquire);
        if address < end
            && address >= it.mapped.load(Ordering::Acquire)
            && it.mapped_end.load(Ordering::Acquire) == end
        {
            return true;
        }
        node = it.next;
    }
    false
}

/// The artifact whose text holds `pc`.
pub(crate) fn artifact_at(pc: usize) -> Option<Arc<Artifact>> {
    let writers = WRITERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let behind = writers.artifacts.partition_point(|&(start, _, _)| start <= pc);
    let (_, end, artifact) = writers.artifacts.get(behind.checked_sub(1)?)?;
    if pc < *end { artifact.upgrade() } else { None }
}

/// Makes a text known as long as it lives.
pub(crate) struct Registration {
    start: usize,
    len: usize,
    node: &'static Node,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}+{:#x}", self.start, self.len)
    }
}

impl Registration {
    pub(crate) fn new(artifact: &Arc<Artifact>) -> Self {
        let (text, len) = artifact.text();
        let (start, end) = (text as usize, text as usize + len);
        let std::ops::Range { start: mapped, end: mapped_end } = artifact.mapped();
        let mut writers = WRITERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let at = writers.artifacts.partition_point(|&(other, _, _)| other < start);
        writers.artifacts.insert(at, (start, end, Arc::downgrade(artifact)));
        let node = match writers.free.pop() {
            Some(node) => {
                node.start.store(start, Ordering::Release);
                node.end.store(end, Ordering::Release);
                node.mapped.store(mapped, Ordering::Release);
                node.mapped_end.store(mapped_end, Ordering::Release);
                node
            }
            None => {
                let next = HEAD.load(Ordering::Relaxed).cast_const();
                let node = Node {
                    start: AtomicUsize::new(start),
                    end: AtomicUsize::new(end),
                    mapped: AtomicUsize::new(mapped),
                    mapped_end: AtomicUsize::new(mapped_end),
                    next,
                };
                let node = Box::leak(Box::new(node));
                HEAD.store(node, Ordering::Release);
                &*node
            }
        };
        Self { start, len, node }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut writers = WRITERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.node.end.store(0, Ordering::Release);
        self.node.mapped_end.store(0, Ordering::Release);
        let (start, end) = (self.start, self.start + self.len);
        if let Some(at) = writers.artifacts.iter().position(|it| (it.0, it.1) == (start, end)) {
            writers.artifacts.remove(at);
        }
        writers.free.push(self.node);
    }
}
