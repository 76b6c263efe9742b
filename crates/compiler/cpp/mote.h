// The C interface between the crate and its C++ part: what LLVM's own C interface lacks.
//
// A module comes in as the front end built it. `mote_optimize` runs LLVM's pipeline with Mote's passes in it, and
// `mote_emit` turns the result into an ELF object. Strings and buffers that are returned are freed with `mote_free`.
#ifndef MOTE_H
#define MOTE_H

#include <stddef.h>
#include <stdint.h>

#include "llvm-c/Types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct MoteTarget MoteTarget;

// What happened to the loads that must trap; sums over the module.
typedef struct {
    uint64_t guest_loads;      // plain loads of guest memory in the module as it came in
    uint64_t without_witness;  // those of them that have no witness: their trap may be lost
    uint64_t witnesses;        // witnesses that the pipeline removed
    uint64_t kept_plain;       // loads whose value is certainly needed
    uint64_t made_volatile;    // loads that only their witness kept alive
    uint64_t idioms;           // loops and functions replaced by an idiom
    uint64_t loops_widened;    // loops cloned with addresses in 64 bits
    uint64_t functions_widened; // functions cloned with addresses in 64 bits
} MoteStatistics;

// A null `cpu` is the host's. Returns null and sets `*error` when LLVM does not know the CPU.
MoteTarget *mote_target_create(const char *cpu, char **error);
void mote_target_dispose(MoteTarget *target);
const char *mote_target_cpu(const MoteTarget *target);
const char *mote_target_features(const MoteTarget *target);
// The instruction set features that the CPU has, sorted, separated by commas.
const char *mote_target_enabled_features(const MoteTarget *target);
const char *mote_target_triple(const MoteTarget *target);
const char *mote_target_data_layout(const MoteTarget *target);

// Runs the pipeline of `level` (0, 1 or 3); with `passes` (LLVM's textual form, Mote's pass names included) runs that instead.
// Returns 0, or 1 with `*error` set.
int mote_optimize(LLVMModuleRef module, const MoteTarget *target, int level, const char *passes,
                  MoteStatistics *statistics, char **error);

// Generates code. Returns 0 with `*object` and `*length` set, or 1 with `*error` set.
int mote_emit(LLVMModuleRef module, const MoteTarget *target, int level, uint8_t **object, size_t *length, char **error);

void mote_free(void *pointer);

#ifdef __cplusplus
}
#endif

#endif
