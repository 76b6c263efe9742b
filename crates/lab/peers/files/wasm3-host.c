// A program around wasm3: wasm3-host MODULE DIRECTORY NAME ARGS… runs the module's _start, with DIRECTORY as the guest's "/".

#include "wasi-host.h"
#include "m3_env.h"
#include "wasm3.h"

enum { STACK_BYTES = 1 << 20 };

static IM3Runtime runtime;

static uint8_t *guest_memory(void) { return m3_GetMemory(runtime, NULL, 0); }
static uint64_t guest_memory_bytes(void) {
  uint32_t bytes = 0;
  m3_GetMemory(runtime, &bytes, 0);
  return bytes;
}

// wasm3 keeps a place for the result first on its stack, then the arguments.
#define RAW static const void *
#define STACK (IM3Runtime r, IM3ImportContext c, uint64_t * s, void *m)
#define W0(n) RAW link_##n STACK { *(U *)s = wasi_##n(); return m3Err_none; }
#define W1(n, A) RAW link_##n STACK { *(U *)s = wasi_##n((A)s[1]); return m3Err_none; }
#define W2(n, A, B) RAW link_##n STACK { *(U *)s = wasi_##n((A)s[1], (B)s[2]); return m3Err_none; }
#define W3(n, A, B, C) RAW link_##n STACK { *(U *)s = wasi_##n((A)s[1], (B)s[2], (C)s[3]); return m3Err_none; }
#define W4(n, A, B, C, D) RAW link_##n STACK { *(U *)s = wasi_##n((A)s[1], (B)s[2], (C)s[3], (D)s[4]); return m3Err_none; }
#define W5(n, A, B, C, D, E) RAW link_##n STACK { *(U *)s = wasi_##n((A)s[1], (B)s[2], (C)s[3], (D)s[4], (E)s[5]); return m3Err_none; }
#define W6(n, A, B, C, D, E, F) \
  RAW link_##n STACK { *(U *)s = wasi_##n((A)s[1], (B)s[2], (C)s[3], (D)s[4], (E)s[5], (F)s[6]); return m3Err_none; }
#define W7(n, A, B, C, D, E, F, G) \
  RAW link_##n STACK { *(U *)s = wasi_##n((A)s[1], (B)s[2], (C)s[3], (D)s[4], (E)s[5], (F)s[6], (G)s[7]); return m3Err_none; }
#define W9(n, A, B, C, D, E, F, G, H, I) \
  RAW link_##n STACK { *(U *)s = wasi_##n((A)s[1], (B)s[2], (C)s[3], (D)s[4], (E)s[5], (F)s[6], (G)s[7], (H)s[8], (I)s[9]); return m3Err_none; }
WASI_FUNCTIONS
#undef W0
#undef W1
#undef W2
#undef W3
#undef W4
#undef W5
#undef W6
#undef W7
#undef W9

static const void *link_proc_exit(IM3Runtime r, IM3ImportContext c, uint64_t *s, void *m) {
  wasi_proc_exit((U)s[0]);
  return m3Err_none;
}

static void check(const char *what, M3Result result) {
  if (!result) return;
  M3ErrorInfo info = {0};
  m3_GetErrorInfo(runtime, &info);
  fprintf(stderr, "wasm3: %s: %s %s\n", what, result, info.message ? info.message : "");
  exit(125);
}

static void link_function(IM3Module module, const char *name, const char *signature, M3RawCall function) {
  M3Result result = m3_LinkRawFunction(module, "wasi_snapshot_preview1", name, signature, function);
  if (result != m3Err_functionLookupFailed) check(name, result);
}

static uint8_t *read_file(const char *path, uint32_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) {
    perror(path);
    exit(125);
  }
  long size = ftell(file);
  rewind(file);
  uint8_t *content = size < 0 ? NULL : malloc((size_t)size + 1);
  if (!content || fread(content, 1, (size_t)size, file) != (size_t)size) {
    perror(path);
    exit(125);
  }
  fclose(file);
  *bytes = (uint32_t)size;
  return content;
}

int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "--version")) return puts("wasm3 " M3_VERSION), 0;
  if (argc < 4) return fputs("usage: wasm3-host MODULE DIRECTORY NAME ARGS…\n", stderr), 125;
  uint32_t bytes;
  uint8_t *content = read_file(argv[1], &bytes);
  open_guest(argc, argv, 2);
  IM3Environment environment = m3_NewEnvironment();
  runtime = m3_NewRuntime(environment, STACK_BYTES, NULL);
  if (!runtime) return fputs("wasm3: no memory\n", stderr), 125;
  IM3Module module;
  check("parse", m3_ParseModule(environment, &module, content, bytes));
  check("load", m3_LoadModule(runtime, module));
#define S_U "i"
#define S_L "I"
#define LINK(n, signature) link_function(module, #n, "i(" signature ")", (M3RawCall)link_##n);
#define W0(n) LINK(n, "")
#define W1(n, A) LINK(n, S_##A)
#define W2(n, A, B) LINK(n, S_##A S_##B)
#define W3(n, A, B, C) LINK(n, S_##A S_##B S_##C)
#define W4(n, A, B, C, D) LINK(n, S_##A S_##B S_##C S_##D)
#define W5(n, A, B, C, D, E) LINK(n, S_##A S_##B S_##C S_##D S_##E)
#define W6(n, A, B, C, D, E, F) LINK(n, S_##A S_##B S_##C S_##D S_##E S_##F)
#define W7(n, A, B, C, D, E, F, G) LINK(n, S_##A S_##B S_##C S_##D S_##E S_##F S_##G)
#define W9(n, A, B, C, D, E, F, G, H, I) LINK(n, S_##A S_##B S_##C S_##D S_##E S_##F S_##G S_##H S_##I)
  WASI_FUNCTIONS
  link_function(module, "proc_exit", "v(i)", (M3RawCall)link_proc_exit);
  IM3Function start;
  check("_start", m3_FindFunction(&start, runtime, "_start"));
  check("trap", m3_Call(start, 0, NULL));
  wasi_proc_exit(0);
}
