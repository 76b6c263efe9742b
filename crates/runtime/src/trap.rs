//! Why a guest stopped: [`Trap`] on the way out to the host, [`HostError`] on the way from a host function into the guest.
//!
//! A trap unwinds guest frames only. When a host function called back into a guest and that traps, it gets the trap as an `Err`,
//! returns it (`?` does), and the stub between host and guest raises it again.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Mutex;

pub use mote_artifact::abi::TrapCode;

use crate::backtrace::Backtrace;
pub use crate::backtrace::Frame;
use crate::value::ExnRef;

/// A guest stopped before its end: a trap of its own, an error of a host function, or an exception that nobody caught.
///
/// ```
/// use mote_runtime::{HostError, Trap, TrapCode};
/// let trap = Trap::from(TrapCode::IntegerDivideByZero);
/// assert_eq!(trap.code(), Some(TrapCode::IntegerDivideByZero));
/// assert_eq!(trap.to_string(), "integer divide by zero");
/// ```
pub struct Trap(Box<Inner>);

struct Inner {
    reason: Reason,
    /// Says more than the code, when there is more to say.
    detail: Option<String>,
    backtrace: Backtrace,
}

enum Reason {
    Code(TrapCode),
    Host(Box<dyn Error + Send + Sync>),
    // In a lock only because a panic's payload need not be Sync.
    Panic(Mutex<Box<dyn Any + Send>>),
    Exception(ExnRef),
}

impl Trap {
    fn new(reason: Reason) -> Self {
        Self(Box::new(Inner { reason, detail: None, backtrace: Backtrace::default() }))
    }

    /// A trap whose cause is an error of the host's.
    pub fn host(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(Reason::Host(error.into()))
    }

    pub(crate) fn panic(payload: Box<dyn Any + Send>) -> Self {
        Self::new(Reason::Panic(Mutex::new(payload)))
    }

    pub(crate) fn exception(exception: ExnRef) -> Self {
        Self::new(Reason::Exception(exception))
    }

    pub(crate) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds the frames of guest code that this trap unwound, innermost first, outside of those it has.
    pub(crate) fn add_frames(&mut self, frames: Backtrace) {
        self.0.backtrace.extend(frames);
    }

    /// The trap code; `None` when the cause is an error of the host's.
    pub fn code(&self) -> Option<TrapCode> {
        match &self.0.reason {
            Reason::Code(code) => Some(*code),
            Reason::Exception(_) => Some(TrapCode::UncaughtException),
            Reason::Host(_) | Reason::Panic(_) => None,
        }
    }

    /// The host's error, when that is the cause.
    pub fn host_error(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        match &self.0.reason {
            Reason::Host(error) => Some(&**error),
            _ => None,
        }
    }

    /// The host's error as the type it was made from: how an embedder finds, say, its own `Exit(code)`.
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.host_error()?.downcast_ref()
    }

    /// The exception that no handler caught, when that is the cause.
    pub fn thrown(&self) -> Option<ExnRef> {
        match &self.0.reason {
            Reason::Exception(exception) => Some(*exception),
            _ => None,
        }
    }

    /// The guest's frames when it stopped, innermost first, with wasm function names and offsets.
    pub fn frames(&self) -> Vec<Frame> {
        self.0.backtrace.frames()
    }

    /// Takes the payload of a host panic out, so that it can be resumed where no guest frame is in between.
    pub(crate) fn take_panic(self) -> Result<Box<dyn Any + Send>, Self> {
        let Inner { reason, detail, backtrace } = *self.0;
        match reason {
            Reason::Panic(payload) => {
                Ok(payload.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()))
            }
            reason => Err(Self(Box::new(Inner { reason, detail, backtrace }))),
        }
    }

    /// The message without the backtrace.
    fn message(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.reason {
            Reason::Code(code) => f.write_str(code.message())?,
            Reason::Host(error) => fmt::Display::fmt(error, f)?,
            Reason::Panic(_) => f.write_str("a host function panicked")?,
            Reason::Exception(_) => f.write_str(TrapCode::UncaughtException.message())?,
        }
        match &self.0.detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}

impl From<TrapCode> for Trap {
    fn from(code: TrapCode) -> Self {
        Self::new(Reason::Code(code))
    }
}

impl From<HostError> for Trap {
    fn from(error: HostError) -> Self {
        match error.0 {
            HostReason::Trap(trap) => trap,
            HostReason::Suspend(_) => Self::host("a suspension cannot leave the guest call that it suspends"),
        }
    }
}

/// One line: the cause alone. `{:#}` adds the wasm backtrace, one frame a line.
impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message(f)?;
        if f.alternate() {
            for frame in self.frames() {
                write!(f, "\n    at {frame}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trap({self:#})")
    }
}

impl Error for Trap {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0.reason {
            Reason::Host(error) => error.source(),
            _ => None,
        }
    }
}

/// What a host function returns instead of its results: the guest does not go on.
///
/// Any error converts into it with `?`. It is deliberately no [`Error`] itself, so that this conversion can exist.
///
/// ```
/// use mote_runtime::{HostError, Trap};
/// fn open(name: &str) -> Result<u32, HostError> {
///     let text = std::fs::read_to_string(name)?; // any error
///     Ok(text.trim().parse()?)
/// }
/// let trap = Trap::from(open("/nonexistent").unwrap_err());
/// assert!(trap.downcast_ref::<std::io::Error>().is_some());
/// ```
pub struct HostError(pub(crate) HostReason);

pub(crate) enum HostReason {
    Trap(Trap),
    Suspend(Box<dyn Any + Send>),
}

impl HostError {
    /// Ends the guest with this trap.
    pub fn trap(code: TrapCode) -> Self {
        Self(HostReason::Trap(code.into()))
    }

    /// Ends the guest with an error that has only a message.
    pub fn message(message: impl Into<String>) -> Self {
        Self(HostReason::Trap(Trap::host(message.into())))
    }

    /// Throws an exception in the guest: a handler there may catch it.
    pub fn throw(exception: ExnRef) -> Self {
        Self(HostReason::Trap(Trap::exception(exception)))
    }

    /// Suspends the guest at this call: [`crate::Execution::resume`] returns [`crate::Step::Suspended`] with `payload`, and its next
    /// call says what this call returns to the guest. Only a guest that was started with [`crate::Execution`] can be suspended;
    /// elsewhere it is a trap.
    pub fn suspend(payload: impl Any + Send) -> Self {
        Self(HostReason::Suspend(Box::new(payload)))
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for HostError {
    fn from(error: E) -> Self {
        let boxed: Box<dyn Any> = Box::new(error);
        match boxed.downcast::<Trap>() {
            Ok(trap) => Self(HostReason::Trap(*trap)),
            Err(boxed) => match boxed.downcast::<E>() {
                Ok(error) => Self(HostReason::Trap(Trap::host(*error))),
                Err(_) => Self::message("unknown error"),
            },
        }
    }
}

impl fmt::Debug for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            HostReason::Trap(trap) => trap.fmt(f),
            HostReason::Suspend(_) => f.write_str("Suspend"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trap_passes_through_a_host_error_unchanged() {
        fn inner() -> Result<(), Trap> {
            Err(TrapCode::Unreachable.into())
        }
        fn outer() -> Result<(), HostError> {
            inner()?;
            Ok(())
        }
        let trap = Trap::from(outer().unwrap_err());
        assert_eq!(trap.code(), Some(TrapCode::Unreachable));
    }

    #[test]
    fn host_errors_keep_their_type() {
        #[derive(Debug, thiserror::Error, PartialEq)]
        #[error("exit {0}")]
        struct Exit(i32);
        let trap = Trap::from(HostError::from(Exit(3)));
        assert_eq!(trap.downcast_ref::<Exit>(), Some(&Exit(3)));
        assert_eq!(trap.to_string(), "exit 3");
        assert_eq!(trap.code(), None);
    }
}
