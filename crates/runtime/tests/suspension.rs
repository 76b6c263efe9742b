//! Suspending, preempting, cancelling and deadlines.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::{Duration, Instant};

use common::module;
use mote_runtime::{Caller, Execution, HostError, Interrupt, Linker, Step, Store, Trap, TrapCode, Val};

const WAITS: &str = r#"(module
    (import "env" "ask" (func $ask (param i32) (result i64)))
    (func (export "run") (param i32) (result i64)
        (local $sum i64)
        (loop $again
            (local.set $sum (i64.add (local.get $sum) (call $ask (local.get 0))))
            (local.set 0 (i32.sub (local.get 0) (i32.const 1)))
            (br_if $again (local.get 0)))
        (local.get $sum)))"#;

fn waiting_store() -> (Store<()>, mote_runtime::Func) {
    let mut linker = Linker::<()>::new();
    linker.func_wrap("env", "ask", |_: Caller<'_, ()>, what: i32| -> Result<i64, HostError> {
        Err(HostError::suspend(what))
    });
    let mut store = Store::new(());
    let instance = linker.instantiate(&mut store, &module(WAITS)).unwrap();
    let run = instance.get_func(&store, "run").unwrap();
    (store, run)
}

#[test]
fn a_host_call_suspends_and_its_answer_arrives() {
    let (mut store, run) = waiting_store();
    let mut first = Execution::new(&mut store, run, &[Val::I32(3)]).unwrap();
    let mut second = Execution::new(&mut store, run, &[Val::I32(2)]).unwrap();
    let asked = |step| match step {
        Step::Suspended(what) => *what.downcast::<i32>().unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(asked(first.resume(&mut store, &[]).unwrap()), 3);
    assert_eq!(asked(second.resume(&mut store, &[]).unwrap()), 2);
    assert_eq!(asked(first.resume(&mut store, &[Val::I64(100)]).unwrap()), 2);
    assert!(first.resume(&mut store, &[Val::I32(1)]).unwrap_err().to_string().contains("does not fit"));
    assert_eq!(asked(second.resume(&mut store, &[Val::I64(1)]).unwrap()), 1);
    assert_eq!(asked(first.resume(&mut store, &[Val::I64(20)]).unwrap()), 1);
    let Step::Finished(results) = second.resume(&mut store, &[Val::I64(2)]).unwrap() else { panic!() };
    assert_eq!(results[0].i64(), Some(3));
    let Step::Finished(results) = first.resume(&mut store, &[Val::I64(3)]).unwrap() else { panic!() };
    assert_eq!(results[0].i64(), Some(123));
    assert!(first.has_ended());
    assert!(first.resume(&mut store, &[]).is_err());
}

#[test]
fn answers_arrive_in_every_kind_of_register() {
    let text = r#"(module
        (import "env" "f32" (func $f32 (param f32 i64) (result f32)))
        (import "env" "f64" (func $f64 (param f64) (result f64)))
        (import "env" "i32" (func $i32 (param i32) (result i32)))
        (import "env" "two" (func $two (param i32) (result i32 f64)))
        (import "env" "many" (func $many (param i32 i32 i32 i32 i32 i32 i32 f32 f64) (result f64)))
        (func (export "run") (result f32 f64 i32 i32 f64 f64)
            (call $f32 (f32.const 1.5) (i64.const -1)) (call $f64 (f64.const 2.5)) (call $i32 (i32.const -3))
            (call $two (i32.const 4))
            (call $many (i32.const 1) (i32.const 2) (i32.const 3) (i32.const 4) (i32.const 5) (i32.const 6) (i32.const 7)
                (f32.const 8) (f64.const 9))))"#;
    let mut linker = Linker::<bool>::new();
    // Suspends when the store says so, answers at once otherwise.
    fn answer<R>(caller: &Caller<'_, bool>, value: R) -> Result<R, HostError> {
        if *caller.data() { Err(HostError::suspend(())) } else { Ok(value) }
    }
    linker.func_wrap("env", "f32", |c: Caller<'_, bool>, a: f32, b: i64| answer(&c, a + b as f32));
    linker.func_wrap("env", "f64", |c: Caller<'_, bool>, a: f64| answer(&c, a * 2.0));
    linker.func_wrap("env", "i32", |c: Caller<'_, bool>, a: i32| answer(&c, a * 2));
    linker.func_wrap("env", "two", |c: Caller<'_, bool>, a: i32| answer(&c, (a, 0.25)));
    linker.func_wrap(
        "env",
        "many",
        |c: Caller<'_, bool>, a: i32, b: i32, d: i32, e: i32, f: i32, g: i32, h: i32, i: f32, j: f64| {
            answer(&c, f64::from(a + 2 * b + 3 * d + 4 * e + 5 * f + 6 * g + 7 * h) + f64::from(i) * j)
        },
    );
    let mut store = Store::new(false);
    let instance = linker.instantiate(&mut store, &module(text)).unwrap();
    let run = instance.get_func(&store, "run").unwrap();
    let bits = |results: &[Val]| -> Vec<u64> {
        let bits = |val: &Val| match *val {
            Val::I32(value) => value as u64,
            Val::F32(bits) => bits.into(),
            Val::F64(bits) => bits,
            _ => unreachable!(),
        };
        results.iter().map(bits).collect()
    };
    let direct = run.call(&mut store, &[]).unwrap();
    let expected =
        [Val::from(0.5_f32), Val::from(5.0), Val::I32(-6), Val::I32(4), Val::from(0.25), Val::from(212.0)];
    assert_eq!(bits(&direct), bits(&expected));
    *store.data_mut() = true;
    let answers = [
        vec![Val::from(-0.5_f32)],
        vec![Val::from(6.5)],
        vec![Val::I32(i32::MIN)],
        vec![Val::I32(9), Val::from(-1.0)],
        vec![Val::from(1e300)],
    ];
    let mut execution = Execution::new(&mut store, run, &[]).unwrap();
    assert!(execution.frames().is_empty());
    let mut step = execution.resume(&mut store, &[]).unwrap();
    for answer in &answers {
        assert!(matches!(step, Step::Suspended(_)));
        assert_eq!(execution.frames()[0].name, "run");
        step = execution.resume(&mut store, answer).unwrap();
    }
    let Step::Finished(results) = step else { panic!() };
    assert_eq!(bits(&results), bits(&answers.concat()));
}

#[test]
fn executions_move_between_threads() {
    let (mut store, run) = waiting_store();
    let mut execution = Execution::new(&mut store, run, &[Val::I32(4)]).unwrap();
    let mut answer = vec![];
    let mut steps = 0;
    loop {
        let (back, step) = std::thread::spawn(move || {
            let mut parts = (store, execution);
            let step = parts.1.resume(&mut parts.0, &answer).unwrap();
            (parts, step)
        })
        .join()
        .unwrap();
        (store, execution) = back;
        match step {
            Step::Finished(results) => {
                assert_eq!(results[0].i64(), Some(20));
                break;
            }
            _ => steps += 1,
        }
        answer = vec![Val::I64(5)];
    }
    assert_eq!(steps, 4);
}

#[test]
fn a_called_guest_cannot_be_suspended_but_the_store_lives_on() {
    let (mut store, run) = waiting_store();
    let trap = run.call(&mut store, &[Val::I32(1)]).unwrap_err();
    assert!(trap.to_string().contains("not started with Execution"), "{trap}");
    let mut execution = Execution::new(&mut store, run, &[Val::I32(1)]).unwrap();
    assert!(matches!(execution.resume(&mut store, &[]), Ok(Step::Suspended(_))));
    execution.cancel();
    assert!(execution.resume(&mut store, &[Val::I64(1)]).is_err());
    assert!(run.call(&mut store, &[Val::I32(1)]).is_err());
}

const SPINS: &str = r#"(module
    (import "env" "work" (func $work (param i32)))
    (global $count (export "count") (mut i64) (i64.const 0))
    (func (export "spin") (loop $again (br $again)))
    (func (export "host_spin") (loop $again (call $work (i32.const 0)) (br $again)))
    (func (export "host") (call $work (i32.const 1)))
    (func (export "sum") (param i64) (result i64 f64)
        (local $i i64) (local $sum i64) (local $x f64)
        (local.set $x (f64.const 1))
        (loop $again
            (local.set $sum (i64.add (local.get $sum) (i64.mul (local.get $i) (i64.xor (local.get $i) (local.get $sum)))))
            (local.set $x (f64.add (f64.const 0.5) (f64.sqrt (f64.mul (local.get $x) (f64.const 1.000001)))))
            (local.set $i (i64.add (local.get $i) (i64.const 1)))
            (br_if $again (i64.lt_u (local.get $i) (local.get 0))))
        (local.get $sum) (local.get $x)))"#;

fn spinning_store() -> (Store<Duration>, mote_runtime::Instance) {
    let mut linker = Linker::<Duration>::new();
    linker.func_wrap("env", "work", |caller: Caller<'_, Duration>, sleep: i32| {
        if sleep != 0 {
            // Blocks in a system call beside the interrupt's descriptor, as WASI does.
            let event = caller.interrupt_event()?;
            let mut poll = libc::pollfd {
                fd: std::os::fd::AsRawFd::as_raw_fd(&event),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one record.
            unsafe { libc::poll(&mut poll, 1, caller.data().as_millis() as i32) };
        }
        Ok::<(), HostError>(())
    });
    let mut store = Store::new(Duration::from_secs(20));
    let instance = linker.instantiate(&mut store, &module(SPINS)).unwrap();
    (store, instance)
}

#[test]
fn a_deadline_ends_a_guest_wherever_it_stands() {
    let (mut store, instance) = spinning_store();
    for name in ["spin", "host_spin", "host"] {
        let func = instance.typed_func::<(), ()>(&store, name).unwrap();
        for _ in 0..5 {
            let begin = Instant::now();
            store.set_deadline(Some(begin + Duration::from_millis(20)));
            let trap = func.call(&mut store, ()).unwrap_err();
            let took = begin.elapsed();
            assert_eq!(trap.code(), Some(TrapCode::Interrupted), "{name}: {trap}");
            assert!(took >= Duration::from_millis(20) && took < Duration::from_secs(5), "{name}: {took:?}");
        }
        // A deadline in the past: nothing runs at all.
        assert_eq!(func.call(&mut store, ()).unwrap_err().code(), Some(TrapCode::Interrupted));
    }
    store.set_deadline(None);
    let sum = instance.typed_func::<i64, (i64, f64)>(&store, "sum").unwrap();
    assert!(sum.call(&mut store, 1000).is_ok());
}

#[test]
fn a_deadline_hits_no_other_guest() {
    let (mut store, instance) = spinning_store();
    let sum = instance.typed_func::<i64, (i64, f64)>(&store, "sum").unwrap();
    let spin = instance.typed_func::<(), ()>(&store, "spin").unwrap();
    let expected = sum.call(&mut store, 5_000).unwrap();
    for round in 0..200_u32 {
        // Ends just about when the next call begins.
        store.set_deadline(Some(Instant::now() + Duration::from_micros(u64::from(round * 7 % 300))));
        match sum.call(&mut store, 5_000) {
            Ok(result) => assert_eq!(result, expected),
            Err(trap) => assert_eq!(trap.code(), Some(TrapCode::Interrupted)),
        }
        store.set_deadline(None);
        assert_eq!(sum.call(&mut store, 5_000).unwrap(), expected);
        if round % 50 == 0 {
            store.set_deadline(Some(Instant::now() + Duration::from_micros(200)));
            assert!(spin.call(&mut store, ()).is_err());
            store.set_deadline(None);
        }
    }
}

#[test]
fn another_thread_interrupts() {
    let (mut store, instance) = spinning_store();
    let handle = store.interrupt_handle();
    for name in ["spin", "host_spin", "host"] {
        let func = instance.typed_func::<(), ()>(&store, name).unwrap();
        for round in 0..20 {
            let other = handle.clone();
            let interrupter = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(round * 100));
                other.interrupt();
            });
            let begin = Instant::now();
            let trap = func.call(&mut store, ()).unwrap_err();
            interrupter.join().unwrap();
            assert_eq!(trap.code(), Some(TrapCode::Interrupted));
            assert!(begin.elapsed() < Duration::from_secs(5), "{name}");
            handle.clear();
        }
    }
}

#[test]
fn a_preempted_guest_goes_on_with_every_register() {
    let (mut store, instance) = spinning_store();
    let sum = instance.get_func(&store, "sum").unwrap();
    let expected = sum.call(&mut store, &[Val::I64(3_000_000)]).unwrap();
    let mut executions: Vec<Execution> = (0..3)
        .map(|_| {
            let mut execution = Execution::new(&mut store, sum, &[Val::I64(3_000_000)]).unwrap();
            execution.set_time_slice(Some(Duration::from_micros(300)));
            execution
        })
        .collect();
    let mut preempted = 0;
    while !executions.is_empty() {
        executions.retain_mut(|execution| match execution.resume(&mut store, &[]).unwrap() {
            Step::Finished(results) => {
                assert_eq!(results[0].i64(), expected[0].i64());
                assert_eq!(results[1].f64().map(f64::to_bits), expected[1].f64().map(f64::to_bits));
                false
            }
            Step::Preempted => {
                preempted += 1;
                true
            }
            Step::Suspended(_) => panic!(),
        });
    }
    assert!(preempted >= 6, "{preempted}");
}

#[test]
fn a_guest_is_preempted_between_host_calls() {
    let (mut store, instance) = spinning_store();
    let spin = instance.get_func(&store, "host_spin").unwrap();
    let mut execution = Execution::new(&mut store, spin, &[]).unwrap();
    execution.set_time_slice(Some(Duration::from_millis(1)));
    for _ in 0..20 {
        assert!(matches!(execution.resume(&mut store, &[]).unwrap(), Step::Preempted));
    }
    store.set_deadline(Some(Instant::now() + Duration::from_millis(5)));
    execution.set_time_slice(None);
    let trap: Trap = execution.resume(&mut store, &[]).unwrap_err();
    assert_eq!(trap.code(), Some(TrapCode::Interrupted));
    assert!(execution.has_ended());
}

#[test]
fn a_preempted_guests_frames_are_found_wherever_it_stands() {
    let mut store = Store::new(());
    // A callee takes its part of the stack away as it returns: for one instruction the tables do not fit.
    let source = module(
        r#"(module
            (func $fib (param i32) (result i32)
                (if (result i32) (i32.lt_u (local.get 0) (i32.const 2))
                    (then (local.get 0))
                    (else (i32.add
                        (call $fib (i32.sub (local.get 0) (i32.const 1)))
                        (call $fib (i32.sub (local.get 0) (i32.const 2)))))))
            (func (export "run") (param i32) (result i32) (call $fib (local.get 0)) (drop) (i32.const 7)))"#,
    );
    let instance = Linker::new().instantiate(&mut store, &source).unwrap();
    let run = instance.get_func(&store, "run").unwrap();
    let mut execution = Execution::new(&mut store, run, &[Val::I32(35)]).unwrap();
    execution.set_time_slice(Some(Duration::from_micros(50)));
    let mut seen = 0;
    loop {
        match execution.resume(&mut store, &[]).unwrap() {
            Step::Preempted => {
                let frames = execution.frames();
                assert_eq!(frames.last().map(|frame| frame.name.as_str()), Some("run"), "{frames:#?}");
                seen += 1;
            }
            Step::Finished(results) => break assert_eq!(results[0].i32(), Some(7)),
            other => panic!("{other:?}"),
        }
    }
    assert!(seen > 20, "{seen}");
}
