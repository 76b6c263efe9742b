//! Shared memories: instances on several threads that wait for and wake one another.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::{Duration, Instant};

use common::{instance, module};
use mote_runtime::{Interrupt, Limits, Linker, Memory, SharedMemory, Store, TrapCode};

const THREAD: &str = r#"(module
    (import "env" "memory" (memory 1 4 shared))
    (func (export "wait32") (param i32 i32 i64) (result i32)
        (memory.atomic.wait32 (local.get 0) (local.get 1) (local.get 2)))
    (func (export "wait64") (param i32 i64 i64) (result i32)
        (memory.atomic.wait64 (local.get 0) (local.get 1) (local.get 2)))
    (func (export "notify") (param i32 i32) (result i32) (memory.atomic.notify (local.get 0) (local.get 1)))
    (func (export "add") (param i32 i32) (result i32) (i32.atomic.rmw.add (local.get 0) (local.get 1)))
    (func (export "lock_add") (param i32)
        (loop $again
            (block $locked
                (br_if $locked (i32.eqz (i32.atomic.rmw.cmpxchg (i32.const 0) (i32.const 0) (i32.const 1))))
                (drop (memory.atomic.wait32 (i32.const 0) (i32.const 1) (i64.const -1)))
                (br $again))
            (i32.store (i32.const 4) (i32.add (i32.load (i32.const 4)) (i32.const 1)))
            (i32.atomic.store (i32.const 0) (i32.const 0))
            (drop (memory.atomic.notify (i32.const 0) (i32.const 1)))
            (br_if $again (local.tee 0 (i32.sub (local.get 0) (i32.const 1))))))
    (func (export "size") (result i32) (memory.size))
    (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0))))"#;

fn thread(module: &mote_runtime::Module, shared: &SharedMemory) -> (Store<()>, mote_runtime::Instance) {
    let mut store = Store::new(());
    let memory = Memory::from_shared(&mut store, shared);
    let mut linker = Linker::new();
    linker.define("env", "memory", memory);
    let instance = linker.instantiate(&mut store, module).unwrap();
    (store, instance)
}

#[test]
fn waiters_wake_by_count_and_time() {
    let module = module(THREAD);
    let shared = SharedMemory::new(1, 4, &Limits::default()).unwrap();
    let (mut store, main) = thread(&module, &shared);
    let wait = main.typed_func::<(i32, i32, i64), i32>(&store, "wait32").unwrap();
    assert_eq!(wait.call(&mut store, (16, 1, -1)).unwrap(), 1);
    let begin = Instant::now();
    assert_eq!(wait.call(&mut store, (16, 0, 20_000_000)).unwrap(), 2);
    assert!(begin.elapsed() >= Duration::from_millis(20));
    assert_eq!(wait.call(&mut store, (17, 0, 0)).unwrap_err().code(), Some(TrapCode::UnalignedAtomic));
    assert_eq!(wait.call(&mut store, (65536, 0, 0)).unwrap_err().code(), Some(TrapCode::MemoryOutOfBounds));
    let notify = main.typed_func::<(i32, i32), i32>(&store, "notify").unwrap();
    assert_eq!(notify.call(&mut store, (16, 1)).unwrap(), 0);
    std::thread::scope(|scope| {
        let mut waiters = Vec::new();
        for index in 0..3 {
            let (module, shared) = (&module, &shared);
            waiters.push(scope.spawn(move || {
                let (mut store, instance) = thread(module, shared);
                if index == 2 {
                    let wait = instance.typed_func::<(i32, i64, i64), i32>(&store, "wait64").unwrap();
                    return wait.call(&mut store, (16, 0, -1)).unwrap();
                }
                let wait = instance.typed_func::<(i32, i32, i64), i32>(&store, "wait32").unwrap();
                wait.call(&mut store, (16, 0, -1)).unwrap()
            }));
        }
        let mut woken = 0;
        while woken < 3 {
            let now = notify.call(&mut store, (16, 2)).unwrap();
            assert!(now <= 2);
            woken += now;
        }
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), 0);
        }
    });
}

#[test]
fn a_lock_of_wait_and_notify_excludes() {
    let module = module(THREAD);
    let shared = SharedMemory::new(1, 4, &Limits::default()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (module, shared) = (&module, &shared);
            scope.spawn(move || {
                let (mut store, instance) = thread(module, shared);
                let lock_add = instance.typed_func::<i32, ()>(&store, "lock_add").unwrap();
                lock_add.call(&mut store, 2000).unwrap();
            });
        }
    });
    let mut sum = [0; 4];
    shared.read(4, &mut sum).unwrap();
    assert_eq!(u32::from_le_bytes(sum), 6000);
}

#[test]
fn growth_is_seen_by_every_thread() {
    let module = module(THREAD);
    let shared = SharedMemory::new(1, 4, &Limits::default()).unwrap();
    let (mut first, a) = thread(&module, &shared);
    let (mut second, b) = thread(&module, &shared);
    assert_eq!(a.typed_func::<i32, i32>(&first, "grow").unwrap().call(&mut first, 2).unwrap(), 1);
    assert_eq!(b.typed_func::<(), i32>(&second, "size").unwrap().call(&mut second, ()).unwrap(), 3);
    assert_eq!(b.typed_func::<i32, i32>(&second, "grow").unwrap().call(&mut second, 2).unwrap(), -1);
    shared.write(3 * 65536 - 1, &[7]).unwrap();
    assert!(shared.write(3 * 65536, &[7]).is_err());
}

#[test]
fn a_waiting_guest_is_interrupted() {
    let module = module(THREAD);
    let shared = SharedMemory::new(1, 4, &Limits::default()).unwrap();
    let (mut store, instance) = thread(&module, &shared);
    let wait = instance.typed_func::<(i32, i32, i64), i32>(&store, "wait32").unwrap();
    store.set_deadline(Some(Instant::now() + Duration::from_millis(30)));
    assert_eq!(wait.call(&mut store, (16, 0, -1)).unwrap_err().code(), Some(TrapCode::Interrupted));
    store.set_deadline(None);
    let notify = instance.typed_func::<(i32, i32), i32>(&store, "notify").unwrap();
    assert_eq!(notify.call(&mut store, (16, 1)).unwrap(), 0);
}

#[test]
fn waiting_needs_a_shared_memory() {
    let (mut store, instance) = instance(
        r#"(module (memory 1)
            (func (export "wait") (result i32) (memory.atomic.wait32 (i32.const 0) (i32.const 0) (i64.const 0)))
            (func (export "notify") (result i32) (memory.atomic.notify (i32.const 0) (i32.const 1))))"#,
    );
    let wait = instance.typed_func::<(), i32>(&store, "wait").unwrap();
    assert_eq!(wait.call(&mut store, ()).unwrap_err().code(), Some(TrapCode::ExpectedSharedMemory));
    let notify = instance.typed_func::<(), i32>(&store, "notify").unwrap();
    assert_eq!(notify.call(&mut store, ()).unwrap(), 0);
}
