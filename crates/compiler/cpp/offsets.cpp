// Addresses with a constant added in 32 bits, on one base.
//
// A compiler that may not assume that pointers do not wrap (clang's -fwrapv, which libsodium's build asks for), and every
// compiler for what lies below a pointer, adds constants in 32 bits: zext(q + 4), zext(q + 8) are unrelated values to alias analysis
// and to the vectorisers, and each takes an instruction of its own. This pass writes
//
//     zext(q + C)   as   zext(q + K) - K + C       for |C| <= K, K = abi::OFFSET_SPAN
//
// without a branch. Both are the same number unless one sum wraps and the other does not; then both name places that no
// memory has: the left one lies within 4 * K of 4 GiB, where memories with 32-bit addresses never reach (the runtime's
// limit), the right one is negative and at least -4 * K, in the low guard. In detail, for the address u + F with u = zext(q + E)
// and F in [-2K, 0], and the new address zext(q + K) + F' with F' = E + F - K in [-2K, 0] and |E - K| <= 2K:
//
//   - E < K: they differ for u >= 2^32 - 2K; there u + F >= 2^32 - 4K, and the new address is below F <= 0.
//   - E > K: they differ for u < E - K; there u + F < F' <= 0, and the new address is at least 2^32 - 2K.
//
// F > 0 (an offset of the access itself, which never wraps) has no such room and is left alone. An access that begins outside traps
// whatever its size.
#include "passes.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/PatternMatch.h"
#include "llvm/Transforms/Utils/Local.h"

using namespace llvm;
using namespace llvm::PatternMatch;

namespace mote {
namespace {

// abi::OFFSET_SPAN in crates/artifact.
constexpr int64_t Span = 1 << 16;

// The address of one access: base + zext(q + E) + F.
struct Address {
    Value *Base;
    Value *Q;
    int64_t E;
    int64_t F;
};

bool read(Value *pointer, Address &address) {
    address.F = 0;
    Value *index = nullptr;
    for (unsigned step = 0; step < 4 && !index; ++step) {
        auto *gep = dyn_cast<GetElementPtrInst>(pointer);
        if (!gep || gep->getNumIndices() != 1 || !gep->getSourceElementType()->isIntegerTy(8))
            return false;
        Value *by = gep->getOperand(1);
        if (auto *constant = dyn_cast<ConstantInt>(by))
            address.F += constant->getSExtValue();
        else
            index = by;
        pointer = gep->getPointerOperand();
    }
    if (!index)
        return false;
    // A constant below the index would be part of F, too.
    while (auto *gep = dyn_cast<GetElementPtrInst>(pointer)) {
        auto *constant = gep->getNumIndices() == 1 ? dyn_cast<ConstantInt>(gep->getOperand(1)) : nullptr;
        if (!constant || !gep->getSourceElementType()->isIntegerTy(8))
            break;
        address.F += constant->getSExtValue();
        pointer = gep->getPointerOperand();
    }
    address.Base = pointer;
    Value *sum;
    if (!match(index, m_ZExt(m_Value(sum))) || !sum->getType()->isIntegerTy(32))
        return false;
    const APInt *constant;
    address.E = 0;
    if (match(sum, m_Add(m_Value(address.Q), m_APInt(constant))))
        address.E = constant->getSExtValue();
    else
        address.Q = sum;
    return !isa<Constant>(address.Q);
}

bool isMovable(const Address &address) {
    int64_t moved = address.E + address.F - Span;
    return address.F <= 0 && address.F >= -2 * Span && moved <= 0 && moved >= -2 * Span &&
           std::abs(address.E - Span) <= 2 * Span;
}

} // namespace

PreservedAnalyses OffsetPass::run(Function &function, FunctionAnalysisManager &) {
    if (function.getParent()->getNamedMetadata("mote.memory64"))
        return PreservedAnalyses::all();
    struct Access {
        Instruction *At;
        Address Place;
    };
    // By base and q, in the order of the function.
    MapVector<std::pair<Value *, Value *>, SmallVector<Access, 8>> groups;
    for (Instruction &instruction : instructions(function)) {
        Address address;
        if ((isa<LoadInst>(instruction) || isa<StoreInst>(instruction)) && isGuestAccess(instruction) &&
            read(getLoadStorePointerOperand(&instruction), address) && isMovable(address))
            groups[{address.Base, address.Q}].push_back({&instruction, address});
    }
    bool changed = false;
    for (auto &[key, accesses] : groups) {
        auto [base, q] = key;
        // Worth a new base when at least two constants share it; done already when it is the only one in use.
        bool varied = any_of(accesses, [&](const Access &access) { return access.Place.E != accesses.front().Place.E; });
        if (!varied)
            continue;
        Instruction *after = dyn_cast<Instruction>(q);
        BasicBlock::iterator point;
        if (!after) {
            point = function.getEntryBlock().getFirstInsertionPt();
        } else if (auto place = after->getInsertionPointAfterDef()) {
            point = *place;
        } else {
            continue;
        }
        IRBuilder<> builder(point->getParent(), point);
        builder.SetCurrentDebugLocation(after ? after->getDebugLoc() : accesses.front().At->getDebugLoc());
        // The base of the addresses may come after q (a base that is not the context); then the sums come before each access.
        Value *sum = builder.CreateZExt(builder.CreateAdd(q, builder.getInt32(Span)), builder.getInt64Ty());
        for (Access &access : accesses) {
            IRBuilder<> there(access.At);
            Value *pointer = there.CreatePtrAdd(base, sum);
            pointer = there.CreatePtrAdd(pointer, there.getInt64(access.Place.E + access.Place.F - Span));
            unsigned operand = isa<LoadInst>(access.At) ? LoadInst::getPointerOperandIndex() : StoreInst::getPointerOperandIndex();
            Value *old = access.At->getOperand(operand);
            access.At->setOperand(operand, pointer);
            RecursivelyDeleteTriviallyDeadInstructions(old);
        }
        changed = true;
    }
    if (!changed)
        return PreservedAnalyses::all();
    PreservedAnalyses preserved;
    preserved.preserveSet<CFGAnalyses>();
    return preserved;
}

} // namespace mote
