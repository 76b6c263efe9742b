/*
 * mote.h: run compiled WebAssembly modules from C.
 *
 * Link with libmote (shared or static). A module is a compiled artifact (`mote compile`). A store owns instances and everything in
 * them; a linker names what modules may import. Functions, memories and instances are numbers that belong to one store.
 *
 * Functions that can fail return a mote_error, or NULL when all went well; the caller frees it. A store is used by one thread
 * at a time; different stores may be used by different threads.
 *
 *     mote_module *module;
 *     mote_error *error = mote_module_open("hello.mote", &module);
 *     if (error) { fprintf(stderr, "%s\n", mote_error_message(error)); mote_error_free(error); return 125; }
 */
#ifndef MOTE_H
#define MOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mote_error mote_error;
typedef struct mote_module mote_module;
typedef struct mote_linker mote_linker;
typedef struct mote_store mote_store;
typedef struct mote_wasi mote_wasi;
typedef struct mote_interrupt mote_interrupt;
typedef struct mote_caller mote_caller;

/* Things in a store. */
typedef size_t mote_instance;
typedef size_t mote_func;
typedef size_t mote_memory;

/* ---- Errors ---------------------------------------------------------------------------------------------------------------- */

/* Why a guest stopped: mote_error_trap. The numbers are those of mote_artifact's TrapCode. */
typedef enum {
    MOTE_TRAP_NONE = 0, /* not a trap of the guest's own */
    MOTE_TRAP_UNREACHABLE = 1,
    MOTE_TRAP_INTEGER_DIVIDE_BY_ZERO = 2,
    MOTE_TRAP_INTEGER_OVERFLOW = 3,
    MOTE_TRAP_INVALID_CONVERSION = 4,
    MOTE_TRAP_MEMORY_OUT_OF_BOUNDS = 5,
    MOTE_TRAP_TABLE_OUT_OF_BOUNDS = 6,
    MOTE_TRAP_UNINITIALIZED_ELEMENT = 7,
    MOTE_TRAP_UNDEFINED_ELEMENT = 8,
    MOTE_TRAP_INDIRECT_CALL_TYPE = 9,
    MOTE_TRAP_UNALIGNED_ATOMIC = 10,
    MOTE_TRAP_NULL_REFERENCE = 11,
    MOTE_TRAP_STACK_OVERFLOW = 12,
    MOTE_TRAP_EXPECTED_SHARED_MEMORY = 13,
    MOTE_TRAP_UNCAUGHT_EXCEPTION = 14,
    MOTE_TRAP_INTERRUPTED = 15,
    MOTE_TRAP_RESOURCE_LIMIT = 16
} mote_trap;

/* An error of the host's own, for host functions to return. The message is copied. */
mote_error *mote_error_new(const char *message);
/* One line. Lives as long as the error. */
const char *mote_error_message(const mote_error *error);
/* The message and the wasm backtrace, one frame a line. Lives as long as the error. */
const char *mote_error_backtrace(const mote_error *error);
mote_trap mote_error_trap(const mote_error *error);
/* Whether the guest ended by itself through WASI, and with which exit code. */
bool mote_error_exit_code(const mote_error *error, int *code);
void mote_error_free(mote_error *error);

/* ---- Modules --------------------------------------------------------------------------------------------------------------- */

/* Maps a compiled artifact. Its code is trusted: open only what a compiler of this project wrote and nobody else could change. */
mote_error *mote_module_open(const char *path, mote_module **module);
/* The same from an open file, which stays the caller's. */
mote_error *mote_module_open_fd(int fd, mote_module **module);
void mote_module_free(mote_module *module);

/* ---- Stores ---------------------------------------------------------------------------------------------------------------- */

/* Limits of a store; 0 stands for the default. */
typedef struct {
    uint64_t memory_bytes;   /* largest linear memory; default 4 GiB */
    uint64_t table_elements; /* largest table; default 10 million */
    size_t stack_bytes;      /* stack of a guest; default 4 MiB */
    uint32_t nested_calls;   /* calls host -> guest -> host -> guest; default 100 */
} mote_limits;

/* limits may be NULL. */
mote_store *mote_store_new(const mote_limits *limits);
void mote_store_free(mote_store *store);
/* Stops guests of the store this many nanoseconds from now with MOTE_TRAP_INTERRUPTED; 0: no deadline. */
void mote_store_set_timeout(mote_store *store, uint64_t nanoseconds);

/* Stops guests of the store from any thread. */
mote_interrupt *mote_store_interrupt(mote_store *store);
void mote_interrupt_raise(const mote_interrupt *interrupt);
void mote_interrupt_clear(const mote_interrupt *interrupt);
void mote_interrupt_free(mote_interrupt *interrupt);

/* ---- WASI preview 1 -------------------------------------------------------------------------------------------------------- */

mote_wasi *mote_wasi_new(void);
void mote_wasi_free(mote_wasi *wasi);
void mote_wasi_arg(mote_wasi *wasi, const char *arg);
void mote_wasi_env(mote_wasi *wasi, const char *name, const char *value);
/* Gives the guest a directory of the host's under its own name. */
void mote_wasi_dir(mote_wasi *wasi, const char *host, const char *guest, bool readonly);
void mote_wasi_inherit_stdio(mote_wasi *wasi);
/* Gives the store's guests what was said; takes wasi, also when it fails. */
mote_error *mote_store_set_wasi(mote_store *store, mote_wasi *wasi);

/* ---- Values ---------------------------------------------------------------------------------------------------------------- */

typedef enum { MOTE_I32 = 0x7f, MOTE_I64 = 0x7e, MOTE_F32 = 0x7d, MOTE_F64 = 0x7c, MOTE_V128 = 0x7b } mote_type;

typedef struct {
    uint8_t type; /* mote_type */
    union {
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
        uint8_t v128[16];
    } of;
} mote_value;

/* ---- Linkers --------------------------------------------------------------------------------------------------------------- */

/* A host function: reads args, writes results (their types are filled in), returns NULL or an error that ends the guest. */
typedef mote_error *(*mote_host_func)(void *env, mote_caller *caller, const mote_value *args, size_t arg_count,
                                      mote_value *results, size_t result_count);

mote_linker *mote_linker_new(void);
void mote_linker_free(mote_linker *linker);
/* Makes the functions of WASI preview 1 known; stores then need mote_store_set_wasi. */
mote_error *mote_linker_add_wasi(mote_linker *linker);
/* Makes a host function known. Threads of different stores may call it at the same time. */
mote_error *mote_linker_add_func(mote_linker *linker, const char *module, const char *name, const mote_type *params,
                                 size_t param_count, const mote_type *results, size_t result_count,
                                 mote_host_func func, void *env);

/* ---- Instances ------------------------------------------------------------------------------------------------------------- */

mote_error *mote_instantiate(const mote_linker *linker, mote_store *store, const mote_module *module,
                             mote_instance *instance);
mote_error *mote_get_func(mote_store *store, mote_instance instance, const char *name, mote_func *func);
mote_error *mote_get_memory(mote_store *store, mote_instance instance, const char *name, mote_memory *memory);
/* Calls a function; results are written, their number must be the function's. */
mote_error *mote_call(mote_store *store, mote_func func, const mote_value *args, size_t arg_count, mote_value *results,
                      size_t result_count);

/* Remembers the state of an instance; takes it back to that state. */
mote_error *mote_checkpoint(mote_store *store, mote_instance instance);
mote_error *mote_reset(mote_store *store, mote_instance instance);

/* ---- Memories -------------------------------------------------------------------------------------------------------------- */

/* Length in bytes. */
uint64_t mote_memory_size(const mote_store *store, mote_memory memory);
mote_error *mote_memory_grow(mote_store *store, mote_memory memory, uint64_t delta_pages, uint64_t *old_pages);
mote_error *mote_memory_read(const mote_store *store, mote_memory memory, uint64_t address, void *to, size_t len);
mote_error *mote_memory_write(mote_store *store, mote_memory memory, uint64_t address, const void *from, size_t len);

/* The memory that the calling guest exports as "memory". */
mote_error *mote_caller_read(const mote_caller *caller, uint64_t address, void *to, size_t len);
mote_error *mote_caller_write(mote_caller *caller, uint64_t address, const void *from, size_t len);

#ifdef __cplusplus
}
#endif

#endif
