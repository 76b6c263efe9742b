// Mote's passes over LLVM IR, and what they know of the IR that the front end builds.
//
// The front end's promises:
//   - a plain load of guest memory carries a TBAA tag whose access type is named `memory` and is followed by
//     `call void @mote.witness.T(T %value)`: see witness.cpp;
//   - an address is `gep i8, base, i64 zext(i32)` and `gep i8, that, i64 constant`, in one or two steps: see addresses.cpp;
//   - a module with a memory of 64-bit addresses has named metadata `mote.memory64`: see offsets.cpp.
#ifndef MOTE_PASSES_H
#define MOTE_PASSES_H

#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"

#include "mote.h"

namespace mote {

// Functions with this attribute skip what costs more than linear time.
inline constexpr const char *TierAttribute = "mote-tier";

bool isWitness(const llvm::Instruction &instruction);
// A load or store of guest memory, as opposed to the context block, tables and the like. An access that lost its tag where LLVM
// merged two counts as one.
bool isGuestAccess(const llvm::Instruction &instruction);

// Counts, and gives witnesses and functions the attributes that the pipeline needs. Runs first.
class PreparePass : public llvm::PassInfoMixin<PreparePass> {
public:
    explicit PreparePass(MoteStatistics *statistics) : Statistics(statistics) {}
    llvm::PreservedAnalyses run(llvm::Module &module, llvm::ModuleAnalysisManager &analyses);
    static bool isRequired() { return true; }

private:
    MoteStatistics *Statistics;
};

// Removes witnesses; a load whose value is not certainly needed becomes volatile. In the quick tiers every load does: their IR is not
// simplified, so code generation would find more to delete than the pass foresees.
class WitnessPass : public llvm::PassInfoMixin<WitnessPass> {
public:
    explicit WitnessPass(MoteStatistics *statistics, bool everyLoad = false)
        : Statistics(statistics), EveryLoad(everyLoad) {}
    llvm::PreservedAnalyses run(llvm::Function &function, llvm::FunctionAnalysisManager &analyses);
    static bool isRequired() { return true; }

private:
    MoteStatistics *Statistics;
    bool EveryLoad;
};

// Computes sums of products of 32-bit limbs with vector multiplies: see limb_products.cpp.
class LimbProductsPass : public llvm::PassInfoMixin<LimbProductsPass> {
public:
    llvm::PreservedAnalyses run(llvm::Function &function, llvm::FunctionAnalysisManager &analyses);
};

// Computes four chains of additions, exclusive ors and rotations as one chain of vectors: see rotations.cpp.
class RotationPass : public llvm::PassInfoMixin<RotationPass> {
public:
    llvm::PreservedAnalyses run(llvm::Function &function, llvm::FunctionAnalysisManager &analyses);
};

// Makes a memcpy of a loop that copies a block in each iteration: see copies.cpp.
class CopyPass : public llvm::PassInfoMixin<CopyPass> {
public:
    explicit CopyPass(MoteStatistics *statistics) : Statistics(statistics) {}
    llvm::PreservedAnalyses run(llvm::Function &function, llvm::FunctionAnalysisManager &analyses);

private:
    MoteStatistics *Statistics;
};

// Loops with this metadata are the versions for when a check fails: no pass need look at them.
inline constexpr const char *RareLoop = "mote.loop.rare";
llvm::MDNode *rareLoop(llvm::LLVMContext &context);

// Gives functions a version whose addresses are 64-bit sums.
class FramePass : public llvm::PassInfoMixin<FramePass> {
public:
    explicit FramePass(MoteStatistics *statistics) : Statistics(statistics) {}
    llvm::PreservedAnalyses run(llvm::Function &function, llvm::FunctionAnalysisManager &analyses);

private:
    MoteStatistics *Statistics;
};

// One multiplication for what wasm code spells out.
class ArithmeticPass : public llvm::PassInfoMixin<ArithmeticPass> {
public:
    explicit ArithmeticPass(MoteStatistics *statistics) : Statistics(statistics) {}
    llvm::PreservedAnalyses run(llvm::Function &function, llvm::FunctionAnalysisManager &analyses);

private:
    MoteStatistics *Statistics;
};

// Compares rows of bytes with vectors: see byte_masks.cpp.
class ByteMaskPass : public llvm::PassInfoMixin<ByteMaskPass> {
public:
    explicit ByteMaskPass(MoteStatistics *statistics) : Statistics(statistics) {}
    llvm::PreservedAnalyses run(llvm::Function &function, llvm::FunctionAnalysisManager &analyses);

private:
    MoteStatistics *Statistics;
};

// Gives addresses that differ by constants one base: see offsets.cpp.
class OffsetPass : public llvm::PassInfoMixin<OffsetPass> {
public:
    llvm::PreservedAnalyses run(llvm::Function &function, llvm::FunctionAnalysisManager &analyses);
};

// Keeps the unroller away from loops that AddressPass makes a memset of.
class SlotLoopPass : public llvm::PassInfoMixin<SlotLoopPass> {
public:
    llvm::PreservedAnalyses run(llvm::Loop &loop, llvm::LoopAnalysisManager &analyses,
                                llvm::LoopStandardAnalysisResults &results, llvm::LPMUpdater &updater);
};

// Gives innermost loops a version whose addresses are 64-bit recurrences.
class AddressPass : public llvm::PassInfoMixin<AddressPass> {
public:
    explicit AddressPass(MoteStatistics *statistics) : Statistics(statistics) {}
    llvm::PreservedAnalyses run(llvm::Function &function, llvm::FunctionAnalysisManager &analyses);

private:
    MoteStatistics *Statistics;
};

} // namespace mote

#endif
