// The program around a module that wasm2c translated: its WASI, and a main() that runs _start.

#include "wasi-host.h"
#include "guest.h"

static w2c_guest guest;
struct w2c_wasi__snapshot__preview1 {
  int unused;
};

static uint8_t *guest_memory(void) { return w2c_guest_memory(&guest)->data; }
static uint64_t guest_memory_bytes(void) { return w2c_guest_memory(&guest)->size; }

#define WASI(name) w2c_wasi__snapshot__preview1_##name
#define HOST struct w2c_wasi__snapshot__preview1 *host
#define W0(n) U WASI(n)(HOST) { return wasi_##n(); }
#define W1(n, A) U WASI(n)(HOST, A a) { return wasi_##n(a); }
#define W2(n, A, B) U WASI(n)(HOST, A a, B b) { return wasi_##n(a, b); }
#define W3(n, A, B, C) U WASI(n)(HOST, A a, B b, C c) { return wasi_##n(a, b, c); }
#define W4(n, A, B, C, D) U WASI(n)(HOST, A a, B b, C c, D d) { return wasi_##n(a, b, c, d); }
#define W5(n, A, B, C, D, E) U WASI(n)(HOST, A a, B b, C c, D d, E e) { return wasi_##n(a, b, c, d, e); }
#define W6(n, A, B, C, D, E, F) U WASI(n)(HOST, A a, B b, C c, D d, E e, F f) { return wasi_##n(a, b, c, d, e, f); }
#define W7(n, A, B, C, D, E, F, G) U WASI(n)(HOST, A a, B b, C c, D d, E e, F f, G g) { return wasi_##n(a, b, c, d, e, f, g); }
#define W9(n, A, B, C, D, E, F, G, H, I) \
  U WASI(n)(HOST, A a, B b, C c, D d, E e, F f, G g, H h, I i) { return wasi_##n(a, b, c, d, e, f, g, h, i); }
WASI_FUNCTIONS
void WASI(proc_exit)(HOST, U status) { wasi_proc_exit(status); }

int main(int argc, char **argv) {
  if (argc < 3) return fputs("usage: PROGRAM DIRECTORY NAME ARGS…\n", stderr), 125;
  open_guest(argc, argv, 1);
  wasm_rt_init();
#ifdef GUEST_IMPORTS_WASI
  static struct w2c_wasi__snapshot__preview1 host;
  wasm2c_guest_instantiate(&guest, &host);
#else
  wasm2c_guest_instantiate(&guest);
#endif
  w2c_guest_0x5Fstart(&guest);
  wasi_proc_exit(0);
}
