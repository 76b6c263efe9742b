/*
 * Runs a command module that was compiled with `mote compile`: run ARTIFACT [ARGS...]
 *
 *     cc -Iinclude examples/c/run.c -o run -Ltarget/release -lmote
 */
#include <mote.h>
#include <stdio.h>

static int fail(mote_error *error) {
    int code;
    if (mote_error_exit_code(error, &code)) {
        mote_error_free(error);
        return code;
    }
    fprintf(stderr, "run: %s\n", mote_error_backtrace(error));
    code = mote_error_trap(error) != MOTE_TRAP_NONE ? 134 : 125;
    mote_error_free(error);
    return code;
}

/* What the guest imports as "host" "add": shows arguments, results and the guest's memory. */
static mote_error *add(void *env, mote_caller *caller, const mote_value *args, size_t arg_count, mote_value *results,
                       size_t result_count) {
    (void)arg_count;
    (void)result_count;
    *(int *)env += 1;
    if (args[0].of.i32 < 0) return mote_error_new("host add takes no negative numbers");
    results[0].of.i32 = args[0].of.i32 + args[1].of.i32;
    return mote_caller_write(caller, 0, &results[0].of.i32, 4);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: run ARTIFACT [ARGS...]\n");
        return 125;
    }
    mote_error *error;
    mote_module *module;
    if ((error = mote_module_open(argv[1], &module))) return fail(error);

    mote_wasi *wasi = mote_wasi_new();
    for (int i = 1; i < argc; i++) mote_wasi_arg(wasi, argv[i]);
    mote_wasi_inherit_stdio(wasi);
    mote_store *store = mote_store_new(NULL);
    if ((error = mote_store_set_wasi(store, wasi))) return fail(error);

    int calls = 0;
    mote_type types[] = {MOTE_I32, MOTE_I32};
    mote_linker *linker = mote_linker_new();
    if ((error = mote_linker_add_wasi(linker))) return fail(error);
    if ((error = mote_linker_add_func(linker, "host", "add", types, 2, types, 1, add, &calls))) return fail(error);

    mote_instance instance;
    mote_func start;
    int code = 0;
    if ((error = mote_instantiate(linker, store, module, &instance)) ||
        (error = mote_get_func(store, instance, "_start", &start)) ||
        (error = mote_call(store, start, NULL, 0, NULL, 0)))
        code = fail(error);
    if (calls) printf("the guest called the host %d times\n", calls);

    mote_store_free(store);
    mote_linker_free(linker);
    mote_module_free(module);
    return code;
}
