//! Guest calls that can stop in the midst and go on later: suspended by a host function, or preempted by a timer.

use std::any::Any;
use std::time::Duration;

use crate::arch::{self, Registers, Status};
use crate::backtrace::{Backtrace, Frame};
use crate::deadline;
use crate::fiber::{self, Fiber};
use crate::func::{self, Func, FuncTypeText};
use crate::store::{AsStoreMut, StoreId};
use crate::trap::{HostReason, Trap};
use crate::value::{FuncType, Slot, Val};
use crate::{TrapCode, canonical_types};

/// A guest call on a stack of its own that is run piece by piece.
///
/// Dropping it cancels the call: its stack returns to the pool and nothing more runs on it.
///
/// ```no_run
/// # use mote_runtime::{Execution, Func, Step, Store, Val};
/// # fn example(mut store: Store<()>, func: Func) -> Result<(), mote_runtime::Trap> {
/// let mut execution = Execution::new(&mut store, func, &[Val::I32(1)])?;
/// let mut answer = Vec::new();
/// let results = loop {
///     match execution.resume(&mut store, &answer)? {
///         Step::Finished(results) => break results,
///         Step::Suspended(_what) => answer = vec![Val::I32(7)], // results of the host call that suspended
///         Step::Preempted => answer.clear(),
///     }
/// };
/// # Ok(()) }
/// ```
pub struct Execution {
    fiber: Option<Box<Fiber>>,
    store: StoreId,
    func: Func,
    ty: FuncType,
    slots: Vec<Slot>,
    state: State,
    time_slice: Option<Duration>,
}

enum State {
    Ready,
    /// A host function suspended the guest: its results go to the slots.
    Suspended {
        slots: *mut Slot,
        results: FuncType,
    },
    Preempted,
    Yielded,
    Ended,
}

// SAFETY: the raw slots lie on the fiber's own stack.
unsafe impl Send for Execution {}

/// Why [`Execution::resume`] came back.
#[derive(Debug)]
pub enum Step {
    /// The call returned these results.
    Finished(Vec<Val>),
    /// A host function suspended the guest, with what it passed to [`crate::HostError::suspend`].
    Suspended(Box<dyn Any + Send>),
    /// The time slice is over; the guest goes on where it stood.
    Preempted,
}

impl Execution {
    /// Prepares a call of a guest function; nothing runs yet.
    pub fn new(mut store: impl AsStoreMut, func: Func, params: &[Val]) -> Result<Self, Trap> {
        let store = store.opaque_mut();
        let ty = canonical_types::get(func.type_id(store));
        if func.host(store).is_some() {
            return Err(Trap::host("only a guest's function can be run piece by piece"));
        }
        let slots = func::arguments(store, &ty, params)?;
        let mut fiber = Fiber::take(store.limits.stack_bytes)
            .map_err(|error| Trap::host(format!("cannot map a stack for a guest: {error}")))?;
        fiber.make_resumable();
        Ok(Self {
            fiber: Some(fiber),
            store: store.id,
            func,
            ty,
            slots,
            state: State::Ready,
            time_slice: None,
        })
    }

    /// Makes the guest yield after it has run for this long at one go; `None`: never.
    pub fn set_time_slice(&mut self, slice: Option<Duration>) {
        self.time_slice = slice;
    }

    /// Runs the guest until it ends, traps, is suspended or preempted. `answer` is what the host call that suspended it returns to
    /// the guest; empty in every other state.
    pub fn resume(&mut self, mut store: impl AsStoreMut, answer: &[Val]) -> Result<Step, Trap> {
        let pointer = store.opaque_ptr();
        let opaque = store.opaque_mut();
        assert!(self.store == opaque.id, "execution of another store");
        if let State::Suspended { slots, results } = &self.state {
            if !answer.iter().map(Val::ty).eq(results.results.iter().copied())
                || !answer.iter().all(|val| val.belongs_to(opaque.id))
            {
                return Err(Trap::host(format!(
                    "the answer does not fit the host function that suspended the guest: it has type {}",
                    FuncTypeText(results)
                )));
            }
            for (at, val) in answer.iter().enumerate() {
                opaque.expose(val);
                // SAFETY: the slots of the waiting host call have room for its results; its stack is ours and nothing runs on it.
                unsafe { slots.add(at).write(val.to_slot()) };
            }
        }
        let Some(fiber) = self.fiber.as_deref_mut() else {
            return Err(Trap::host("the call has already ended"));
        };
        if matches!(self.state, State::Suspended { .. }) {
            // A direct call takes its answer from either kind of register.
            fiber.result_float = fiber.result.u64();
        }
        if deadline::interrupted(opaque) {
            self.end();
            return Err(TrapCode::Interrupted.into());
        }
        opaque.enter_depth()?;
        deadline::set_time_slice(opaque, self.time_slice);
        let fiber: *mut Fiber = fiber;
        let (func_ref, state) =
            (*self.func.func_ref(opaque), std::mem::replace(&mut self.state, State::Ended));
        let slots = self.slots.as_mut_ptr();
        // SAFETY: the fiber is in the state that is remembered beside it; the function's record and owner live as long as the store.
        let status = unsafe {
            let entry = (*func_ref.owner).module.entry_thunk(func_ref.type_id as u32)?;
            fiber::run(pointer, fiber, || match state {
                State::Ready => arch::enter(fiber, entry, func_ref.ctx, func_ref.code, slots),
                State::Preempted => arch::resume_preempted(fiber),
                State::Suspended { .. } | State::Yielded | State::Ended => arch::resume(fiber),
            })
        };
        // SAFETY: exclusive access; the guest has been left.
        let opaque = unsafe { &mut *pointer.as_ptr() };
        opaque.leave_depth();
        deadline::set_time_slice(opaque, None);
        match status {
            Status::Returned => {
                let results = func::results(&self.ty, &self.slots, self.store);
                self.end();
                Ok(Step::Finished(results))
            }
            Status::Suspended => {
                let payload = match opaque.outcome.take() {
                    Some(HostReason::Suspend(payload)) => payload,
                    _ => Box::new(()),
                };
                let (slots, type_id) = opaque.suspended;
                self.state = State::Suspended { slots, results: canonical_types::get(type_id) };
                Ok(Step::Suspended(payload))
            }
            Status::Preempted => {
                self.state = State::Preempted;
                Ok(Step::Preempted)
            }
            Status::Yielded => {
                self.state = State::Yielded;
                Ok(Step::Preempted)
            }
            Status::Raised | Status::Faulted => {
                // SAFETY: the guest has ended with that status and its stack has not been used since.
                let trap = unsafe { fiber::ended(pointer, &*fiber, status) };
                self.end();
                Err(fiber::resume_panic(trap))
            }
        }
    }

    /// The guest's frames where it stands, innermost first; empty before it begins and after it has ended.
    pub fn frames(&self) -> Vec<Frame> {
        let Some(fiber) = &self.fiber else { return Vec::new() };
        let (registers, returns) = match self.state {
            State::Ready | State::Ended => return Vec::new(),
            State::Preempted => (fiber.registers, false),
            State::Suspended { .. } | State::Yielded => {
                // SAFETY: a stub left the guest: its registers are on its stack.
                let registers = unsafe { Registers::of_host_call(fiber.guest_sp) };
                (registers, true)
            }
        };
        // SAFETY: the stack is mapped and nothing runs on it.
        unsafe { Backtrace::capture(&registers, fiber.stack_range(), returns) }.frames()
    }

    /// Whether the call has ended: returned, trapped or been cancelled.
    pub fn has_ended(&self) -> bool {
        self.fiber.is_none()
    }

    /// Ends the call where it stands. Its stack returns to the pool and nothing more runs on it.
    pub fn cancel(&mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.state = State::Ended;
        if let Some(fiber) = self.fiber.take() {
            fiber.give_back();
        }
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.end();
    }
}
