// Loops that copy a block in each iteration.
//
// A C library's `memcpy` for WebAssembly copies 16 or 32 bytes in each iteration of its loop, by loads and stores of a word
// each. Nothing in LLVM takes them together: LoopIdiomRecognize wants one store as wide as the step, and SLP would have to know
// that source and destination lie apart. Nor does ScalarEvolution know how often the loop runs: the length that is left,
// `n -= 32; n > 15`, would wrap for lengths that do not come here.
//
// This pass puts a check in front of such a loop: the length counts down to its end without a wrap, neither pointer wraps at 32 bits,
// the two ranges are disjoint, and the copy is long enough to be worth a call. Then one memcpy, of the artifact's own, does
// it; if not, the loop runs as it is.
#include "passes.h"

#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/PatternMatch.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/LCSSA.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"
#include "llvm/Transforms/Utils/LoopUtils.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"

using namespace llvm;
using namespace llvm::PatternMatch;

namespace mote {
namespace {

constexpr unsigned MaxInstructions = 100;
constexpr unsigned MaxStep = 256;
// A copy below this length is faster in the loop than by checks and a call.
constexpr unsigned MinBytes = 128;

// The addresses of an iteration's loads, or of its stores: base + zext(Sum) + an offset.
struct Side {
    const SCEV *Base = nullptr;
    const SCEVAddRecExpr *Sum = nullptr; // i32
    int64_t Lowest = 0;
};

class CopyLoop {
public:
    CopyLoop(Loop &loop, LoopInfo &loops, DominatorTree &dominators, ScalarEvolution &evolution)
        : L(loop), Loops(loops), Dominators(dominators), SE(evolution),
          Expander(evolution, loop.getHeader()->getModule()->getDataLayout(), "copy") {}

    bool run() {
        Preheader = L.getLoopPreheader();
        Exit = L.getUniqueExitBlock();
        if (!Preheader || !Exit || L.getNumBlocks() != 1 || L.getExitingBlock() != L.getHeader() ||
            !L.isLCSSAForm(Dominators) || !findCopies() || !findTrips() || !findResults() || !canExpand())
            return false;
        version();
        return true;
    }

private:
    // Every store stores what a load of the same iteration loaded, and together they copy a whole block.
    bool findCopies() {
        SmallVector<std::pair<int64_t, int64_t>, 16> blocks; // offset and size of the stores
        if (L.getHeader()->size() > MaxInstructions)
            return false;
        const DataLayout &layout = L.getHeader()->getModule()->getDataLayout();
        std::optional<int64_t> shift;
        unsigned loads = 0;
        for (Instruction &instruction : *L.getHeader()) {
            if (auto *load = dyn_cast<LoadInst>(&instruction)) {
                if (!load->isSimple() || !isGuestAccess(*load) || !load->hasOneUse())
                    return false;
                ++loads;
                continue;
            }
            if (!instruction.mayReadOrWriteMemory() && !instruction.mayHaveSideEffects())
                continue;
            auto *store = dyn_cast<StoreInst>(&instruction);
            if (!store || !store->isSimple() || !isGuestAccess(*store))
                return false;
            auto *load = dyn_cast<LoadInst>(store->getValueOperand());
            if (!load || !L.contains(load))
                return false;
            auto from = offsetOn(Source, load->getPointerOperand());
            auto to = offsetOn(Destination, store->getPointerOperand());
            if (!from || !to || (shift && *shift != *from - *to))
                return false;
            shift = *from - *to;
            Type *type = load->getType();
            if (layout.getTypeStoreSizeInBits(type) != layout.getTypeSizeInBits(type))
                return false;
            blocks.push_back({*to, int64_t(layout.getTypeStoreSize(type))});
        }
        if (blocks.empty() || blocks.size() != loads)
            return false;
        sort(blocks);
        int64_t end = blocks[0].first;
        for (auto [offset, size] : blocks) {
            if (offset != end)
                return false;
            end += size;
        }
        Destination.Lowest = blocks[0].first;
        Source.Lowest = Destination.Lowest + *shift;
        Step = end - Destination.Lowest;
        return Step <= MaxStep && hasStep(Source) && hasStep(Destination);
    }

    bool hasStep(const Side &side) const {
        const auto *step = dyn_cast<SCEVConstant>(side.Sum->getStepRecurrence(SE));
        return step && step->getAPInt() == Step;
    }

    // The constant part of an address that is otherwise the same as the side's others.
    std::optional<int64_t> offsetOn(Side &side, Value *pointer) {
        const SCEV *base = SE.getPointerBase(SE.getSCEV(pointer));
        const SCEV *offset = SE.removePointerBase(SE.getSCEV(pointer));
        int64_t constant = 0;
        const SCEVAddRecExpr *sum = nullptr;
        SmallVector<const SCEV *, 4> parts{offset};
        if (const auto *add = dyn_cast<SCEVAddExpr>(offset))
            parts.assign(add->operands().begin(), add->operands().end());
        const SCEV *fixed = base;
        for (const SCEV *part : parts) {
            const auto *extended = dyn_cast<SCEVZeroExtendExpr>(part);
            const auto *recurrence = extended ? dyn_cast<SCEVAddRecExpr>(extended->getOperand()) : nullptr;
            if (const auto *number = dyn_cast<SCEVConstant>(part)) {
                constant += number->getAPInt().getSExtValue();
            } else if (recurrence && !sum && recurrence->getLoop() == &L && recurrence->isAffine() &&
                       recurrence->getType()->isIntegerTy(32)) {
                sum = recurrence;
            } else if (SE.isLoopInvariant(part, &L)) {
                fixed = SE.getAddExpr(fixed, part);
            } else {
                return std::nullopt;
            }
        }
        if (!sum || !SE.isLoopInvariant(base, &L))
            return std::nullopt;
        if (!side.Sum) {
            side.Base = fixed;
            side.Sum = sum;
        }
        if (side.Base != fixed || side.Sum != sum)
            return std::nullopt;
        return constant;
    }

    // How often the loop goes back. A length that counts down by a power of two while it is above a bound has its end where
    // only the remainder is left, if the remainder is within the bound.
    bool findTrips() {
        Trips = SE.getBackedgeTakenCount(&L);
        if (!isa<SCEVCouldNotCompute>(Trips))
            return Trips->getType()->isIntegerTy() && SE.getTypeSizeInBits(Trips->getType()) <= 64;
        auto *branch = dyn_cast<BranchInst>(L.getHeader()->getTerminator());
        Value *left;
        const APInt *bound;
        CmpInst::Predicate predicate;
        if (!branch || !branch->isConditional() ||
            !match(branch->getCondition(), m_ICmp(predicate, m_Value(left), m_APInt(bound))))
            return false;
        if (branch->getSuccessor(1) == L.getHeader())
            predicate = CmpInst::getInversePredicate(predicate);
        // The loop goes on while left > bound.
        APInt most = *bound;
        if (predicate == CmpInst::ICMP_UGE && !most.isZero())
            --most;
        else if (predicate != CmpInst::ICMP_UGT)
            return false;
        const auto *length = dyn_cast<SCEVAddRecExpr>(SE.getSCEV(left));
        if (!length || length->getLoop() != &L || !length->isAffine() || !length->getType()->isIntegerTy(32))
            return false;
        const auto *step = dyn_cast<SCEVConstant>(length->getStepRecurrence(SE));
        if (!step || !step->getAPInt().isNegative())
            return false;
        APInt stride = -step->getAPInt();
        if (!stride.isPowerOf2() || most.uge(stride))
            return false;
        // `left` is the length after an iteration.
        const SCEV *before = SE.getMinusSCEV(length->getStart(), step);
        Length = before;
        Stride = stride;
        Remainder = most;
        const SCEV *one = SE.getOne(before->getType());
        Trips = SE.getMinusSCEV(SE.getUDivExpr(before, SE.getConstant(stride)), one);
        return true;
    }

    // The values that the code behind the loop uses, by their last iteration.
    bool findResults() {
        for (PHINode &phi : Exit->phis()) {
            const SCEV *last = SE.isSCEVable(phi.getType()) ? SE.getSCEV(phi.getIncomingValueForBlock(L.getHeader())) : nullptr;
            if (!last)
                return false;
            if (const auto *recurrence = dyn_cast<SCEVAddRecExpr>(last)) {
                if (recurrence->getLoop() != &L || !recurrence->isAffine() || !recurrence->getType()->isIntegerTy())
                    return false;
                const SCEV *trips = SE.getTruncateOrZeroExtend(Trips, recurrence->getType());
                last = recurrence->evaluateAtIteration(trips, SE);
            }
            if (!SE.isLoopInvariant(last, &L))
                return false;
            Results.push_back({&phi, last});
        }
        return true;
    }

    bool canExpand() {
        Instruction *at = Preheader->getTerminator();
        auto can = [&](const SCEV *expression) { return Expander.isSafeToExpandAt(expression, at); };
        return can(Trips) && (!Length || can(Length)) && can(Source.Base) && can(Destination.Base) &&
               can(Source.Sum->getStart()) && can(Destination.Sum->getStart()) &&
               all_of(Results, [&](const auto &result) { return can(result.second); });
    }

    void version() {
        Instruction *at = Preheader->getTerminator();
        IRBuilder<> builder(at);
        Type *wide = builder.getInt64Ty();
        auto expand = [&](const SCEV *expression, Type *type) {
            return Expander.expandCodeFor(expression, type, at->getIterator());
        };
        Value *good = builder.getTrue();
        auto require = [&](Value *condition) { good = builder.CreateAnd(good, condition); };
        if (Length) {
            Value *length = expand(Length, Length->getType());
            require(builder.CreateICmpUGE(length, builder.getInt(Stride)));
            require(builder.CreateICmpULE(builder.CreateAnd(length, builder.getInt(Stride - 1)), builder.getInt(Remainder)));
        }
        Value *largest = builder.getInt64(UINT32_MAX);
        Value *trips = expand(SE.getTruncateOrZeroExtend(Trips, wide), wide);
        // At most 2^32 iterations of at most 256 bytes: nothing below wraps at 64 bits.
        require(builder.CreateICmpULE(trips, largest));
        Value *behind = builder.CreateMul(trips, builder.getInt64(Step));
        Value *bytes = builder.CreateAdd(behind, builder.getInt64(Step));
        require(builder.CreateICmpUGE(bytes, builder.getInt64(MinBytes)));
        auto start = [&](const Side &side) {
            Value *first = expand(SE.getZeroExtendExpr(side.Sum->getStart(), wide), wide);
            require(builder.CreateICmpULE(builder.CreateAdd(first, behind), largest));
            Value *offset = builder.CreateAdd(first, builder.getInt64(side.Lowest));
            return builder.CreatePtrAdd(expand(side.Base, side.Base->getType()), offset);
        };
        Value *source = start(Source), *destination = start(Destination);
        Value *distance = builder.CreateSub(builder.CreatePtrToInt(destination, wide), builder.CreatePtrToInt(source, wide));
        require(builder.CreateICmpUGE(distance, bytes));
        require(builder.CreateICmpUGE(builder.CreateNeg(distance), bytes));
        SmallVector<Value *, 4> results;
        for (auto [phi, last] : Results)
            results.push_back(expand(last, phi->getType()));

        BasicBlock *check = Preheader;
        BasicBlock *entry = SplitBlock(check, at->getIterator(), &Dominators, &Loops);
        auto *copy = BasicBlock::Create(check->getContext(), "copy", check->getParent(), entry);
        Instruction *jump = check->getTerminator();
        builder.SetInsertPoint(jump);
        builder.CreateCondBr(good, copy, entry);
        jump->eraseFromParent();
        builder.SetInsertPoint(copy);
        builder.SetCurrentDebugLocation(L.getStartLoc());
        builder.CreateMemCpy(destination, Align(1), source, Align(1), bytes);
        builder.CreateBr(Exit);
        for (auto [result, value] : zip(Results, results))
            result.first->addIncoming(value, copy);
        if (Loop *outer = Loops.getLoopFor(check))
            outer->addBasicBlockToLoop(copy, Loops);
        Dominators.recalculate(*check->getParent());
        formDedicatedExitBlocks(&L, &Dominators, &Loops, nullptr, true);
    }

    Loop &L;
    LoopInfo &Loops;
    DominatorTree &Dominators;
    ScalarEvolution &SE;
    SCEVExpander Expander;
    BasicBlock *Preheader = nullptr, *Exit = nullptr;
    Side Source, Destination;
    uint64_t Step = 0;
    const SCEV *Trips = nullptr;
    const SCEV *Length = nullptr; // i32, before the first iteration, when Trips depends on how it is divided
    APInt Stride, Remainder;
    SmallVector<std::pair<PHINode *, const SCEV *>, 4> Results;
};

} // namespace

PreservedAnalyses CopyPass::run(Function &function, FunctionAnalysisManager &analyses) {
    if (function.hasFnAttribute(TierAttribute) || function.hasOptSize())
        return PreservedAnalyses::all();
    auto &loops = analyses.getResult<LoopAnalysis>(function);
    auto &dominators = analyses.getResult<DominatorTreeAnalysis>(function);
    auto &evolution = analyses.getResult<ScalarEvolutionAnalysis>(function);
    auto &assumptions = analyses.getResult<AssumptionAnalysis>(function);
    bool changed = false;
    for (Loop *outer : loops) {
        changed |= simplifyLoop(outer, &dominators, &loops, &evolution, &assumptions, nullptr, false);
        changed |= formLCSSARecursively(*outer, dominators, &loops, &evolution);
    }
    SmallVector<Loop *, 16> innermost;
    for (Loop *loop : loops.getLoopsInPreorder()) {
        if (loop->isInnermost() && !getBooleanLoopAttribute(loop, RareLoop))
            innermost.push_back(loop);
    }
    for (Loop *loop : innermost) {
        if (CopyLoop(*loop, loops, dominators, evolution).run()) {
            evolution.forgetLoop(loop);
            ++Statistics->idioms;
            changed = true;
        }
    }
    return changed ? PreservedAnalyses::none() : PreservedAnalyses::all();
}

} // namespace mote
