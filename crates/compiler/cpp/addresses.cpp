// Loops whose addresses do not wrap.
//
// An address of WebAssembly is a 32-bit sum: the front end builds `gep i8, base, zext(i32 sum)`, and nothing says that the
// sum did not wrap. LLVM's loop passes then see neither consecutive accesses nor memset, and no two accesses that are known to
// be apart. This pass looks at each innermost loop right before vectorisation. Where such a sum is an affine recurrence
// over the loop, it computes in front of the loop, in 64 bits, the value that the sum reaches in the last iteration; if that
// lies within 32 bits (for every sum; those that frames.cpp makes are sign-extended), none of them wrapped on the way. The loop
// is cloned: the fast version has 64-bit recurrences, the original stays for when the check fails. Both do the same accesses at
// the same addresses.
//
// The second thing that hides a loop is a pointer kept in memory (`volatile` in C, or a pointer that a byte store might have
// overwritten): a load from an address that does not change, reloaded in each iteration since a store of the loop may
// overwrite it. `sodium_memzero` is such a loop. When the pass knows the ranges that the loop's stores cover, it checks that
// none of them touches the slot, and the fast version has the value loaded once. LoopIdiomRecognize, which runs next, makes
// a memset of it.
#include "passes.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/PatternMatch.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/LCSSA.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"
#include "llvm/Transforms/Utils/LoopUtils.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"

using namespace llvm;

namespace mote {

namespace {

// A loop beyond this is not cloned; a function's clones may add this much.
constexpr unsigned MaxLoopInstructions = 250;
constexpr unsigned MaxClonedInstructions = 3000;
constexpr unsigned MaxSums = 16;
// Instructions of a loop that fills memory through a pointer it reloads, unrolled by clang.
constexpr unsigned MaxSlotLoop = 60;
constexpr unsigned MaxChecks = 24;

// Sums with the same step whose starts differ by constants: they become one 64-bit recurrence, so that their accesses are
// seen as neighbours.
struct Family {
    const SCEV *Start; // i32, of the first sum found
    const SCEV *Step;  // i32
    bool Signed;       // how the sum is extended to 64 bits
    int64_t Least = 0, Most = 0;
    Value *First = nullptr, *Last = nullptr; // the recurrence in the first and in the last iteration
    PHINode *Recurrence = nullptr;
};

// An i64 value of the loop that equals zext or sext (i32 {Start + Distance,+,Step}).
struct Sum {
    Instruction *Value;
    size_t Family;
    int64_t Distance;
};

class Widening {
public:
    Widening(Loop &loop, LoopInfo &loops, DominatorTree &dominators, ScalarEvolution &evolution)
        : L(loop), Loops(loops), Dominators(dominators), SE(evolution),
          Expander(evolution, loop.getHeader()->getModule()->getDataLayout(), "mote") {}

    // The number of instructions cloned; 0 when the loop stays as it is.
    unsigned run() {
        if (!L.isLoopSimplifyForm() || !L.isLCSSAForm(Dominators) || !L.isInnermost())
            return 0;
        Preheader = L.getLoopPreheader();
        Trips = SE.getSymbolicMaxBackedgeTakenCount(&L);
        if (!collect() || isa<SCEVCouldNotCompute>(Trips) || !Trips->getType()->isIntegerTy())
            return 0;
        if (SE.getTypeSizeInBits(Trips->getType()) > 64)
            return 0;
        findSlots();
        findSums();
        if (!Slots.empty() && !storesHaveRanges()) {
            forgetSlots();
            findSums();
        }
        if (Sums.empty() || Sums.size() > MaxSums || !canExpand()) {
            forgetSlots();
            return 0;
        }
        version();
        return Size;
    }

private:
    bool collect() {
        for (BasicBlock *block : L.blocks()) {
            Size += block->size();
            if (Size > MaxLoopInstructions || isa<IndirectBrInst>(block->getTerminator()) ||
                isa<InvokeInst>(block->getTerminator()))
                return false;
            for (Instruction &instruction : *block) {
                if (const auto *call = dyn_cast<CallBase>(&instruction)) {
                    if (call->cannotDuplicate() || call->isConvergent() || call->mayHaveSideEffects())
                        return false;
                }
                if (auto *pointer = getLoadStorePointerOperand(&instruction); pointer && isGuestAccess(instruction)) {
                    Accesses.push_back(&instruction);
                }
                if (instruction.mayWriteToMemory()) {
                    auto *store = dyn_cast<StoreInst>(&instruction);
                    if (!store || !store->isSimple())
                        OnlySimpleStores = false;
                    else
                        Stores.push_back(store);
                }
            }
        }
        return !Accesses.empty();
    }

    // Loads from an address that does not change, in every iteration.
    void findSlots() {
        if (!OnlySimpleStores || Stores.empty())
            return;
        MapVector<Value *, LoadInst *> copies;
        for (Instruction *access : Accesses) {
            auto *load = dyn_cast<LoadInst>(access);
            if (!load || !load->isSimple() || !load->getType()->isIntegerTy(32) ||
                !L.isLoopInvariant(load->getPointerOperand()))
                continue;
            // The header runs whenever the loop is entered, so the load may as well be done before.
            auto copy = copies.find(load->getPointerOperand());
            if (copy == copies.end()) {
                if (load->getParent() != L.getHeader())
                    continue;
                copy = copies.insert({load->getPointerOperand(), cast<LoadInst>(load->clone())}).first;
                copy->second->insertBefore(Preheader->getTerminator());
            }
            Slots.push_back({load, copy->second});
            SlotValues[load] = SE.getSCEV(copy->second);
        }
        for (auto [pointer, copy] : copies)
            Hoisted.push_back(copy);
    }

    void forgetSlots() {
        for (LoadInst *copy : Hoisted) {
            SE.forgetValue(copy);
            copy->eraseFromParent();
        }
        Hoisted.clear();
        Slots.clear();
        SlotValues.clear();
        Ranges.clear();
    }

    const SCEV *evolutionOf(Value *value) {
        const SCEV *expression = SE.getSCEV(value);
        return SlotValues.empty() ? expression : SCEVParameterRewriter::rewrite(expression, SE, SlotValues);
    }

    // The sums that the accesses' addresses are made of.
    void findSums() {
        Sums.clear();
        Families.clear();
        SmallPtrSet<Value *, 16> seen;
        SmallVector<Value *, 16> work;
        for (Instruction *access : Accesses)
            work.push_back(getLoadStorePointerOperand(access));
        while (!work.empty()) {
            auto *value = dyn_cast<Instruction>(work.pop_back_val());
            if (!value || !L.contains(value) || !seen.insert(value).second || isa<PHINode>(value))
                continue;
            if (value->getType()->isIntegerTy(64) && SE.isSCEVable(value->getType())) {
                const auto *extended = dyn_cast<SCEVCastExpr>(evolutionOf(value));
                if (extended && !isa<SCEVZeroExtendExpr>(extended) && !isa<SCEVSignExtendExpr>(extended))
                    extended = nullptr;
                const auto *recurrence = extended ? dyn_cast<SCEVAddRecExpr>(extended->getOperand()) : nullptr;
                if (recurrence && recurrence->getType()->isIntegerTy(32) && recurrence->getLoop() == &L &&
                    recurrence->isAffine()) {
                    addSum(value, *recurrence, isa<SCEVSignExtendExpr>(extended));
                    continue;
                }
            }
            if (isa<GetElementPtrInst>(value) || isa<BinaryOperator>(value))
                work.append(value->op_begin(), value->op_end());
        }
    }

    Type *wide() const { return Type::getInt64Ty(L.getHeader()->getContext()); }

    void addSum(Instruction *value, const SCEVAddRecExpr &recurrence, bool isSigned) {
        const SCEV *start = recurrence.getStart(), *step = recurrence.getStepRecurrence(SE);
        for (auto [number, family] : enumerate(Families)) {
            const auto *distance = dyn_cast<SCEVConstant>(SE.getMinusSCEV(start, family.Start));
            if (family.Step != step || family.Signed != isSigned || !distance)
                continue;
            int64_t bytes = distance->getAPInt().getSExtValue();
            family.Least = std::min(family.Least, bytes);
            family.Most = std::max(family.Most, bytes);
            Sums.push_back({value, number, bytes});
            return;
        }
        Sums.push_back({value, Families.size(), 0});
        Families.push_back({start, step, isSigned});
    }

    const SCEV *wideTrips() { return SE.getTruncateOrZeroExtend(Trips, wide()); }

    // The address of an access: base + constant, + a sum if it moves.
    struct Place {
        Value *Base;
        int64_t Offset;
        const Sum *Moving;
    };

    // What stores of one base and family cover: the offsets of their first and of the byte after their last.
    struct Range {
        Value *Base;
        const Family *Moving;
        int64_t Low, High;
    };
    std::optional<Place> placeOf(Value *pointer) {
        Place place{pointer, 0, nullptr};
        while (auto *step = dyn_cast<GetElementPtrInst>(place.Base)) {
            if (L.isLoopInvariant(step))
                break;
            if (!step->getSourceElementType()->isIntegerTy(8) || step->getNumIndices() != 1)
                return std::nullopt;
            Value *index = step->getOperand(1);
            if (auto *add = dyn_cast<BinaryOperator>(index); add && add->getOpcode() == Instruction::Add &&
                                                             isa<ConstantInt>(add->getOperand(1)) && !sumOf(index)) {
                place.Offset += cast<ConstantInt>(add->getOperand(1))->getSExtValue();
                index = add->getOperand(0);
            }
            if (auto *constant = dyn_cast<ConstantInt>(index)) {
                place.Offset += constant->getSExtValue();
            } else if (const Sum *sum = sumOf(index); sum && !place.Moving) {
                place.Moving = sum;
            } else {
                return std::nullopt;
            }
            place.Base = step->getPointerOperand();
        }
        if (!L.isLoopInvariant(place.Base))
            return std::nullopt;
        return place;
    }

    const Sum *sumOf(Value *value) const {
        auto *found = find_if(Sums, [&](const Sum &sum) { return sum.Value == value; });
        return found == Sums.end() ? nullptr : &*found;
    }

    // All stores have known ranges; they are kept for the checks.
    bool storesHaveRanges() {
        const DataLayout &layout = L.getHeader()->getModule()->getDataLayout();
        for (StoreInst *store : Stores) {
            auto place = placeOf(store->getPointerOperand());
            if (!place)
                return false;
            const Family *family = place->Moving ? &Families[place->Moving->Family] : nullptr;
            if (family && !isa<SCEVConstant>(family->Step))
                return false;
            int64_t low = place->Offset + (place->Moving ? place->Moving->Distance : 0);
            int64_t high = low + int64_t(layout.getTypeStoreSize(store->getValueOperand()->getType()));
            auto *range = find_if(Ranges, [&](const Range &other) {
                return other.Base == place->Base && other.Moving == family;
            });
            if (range == Ranges.end()) {
                Ranges.push_back({place->Base, family, low, high});
            } else {
                range->Low = std::min(range->Low, low);
                range->High = std::max(range->High, high);
            }
        }
        return true;
    }

    bool canExpand() {
        Instruction *at = Preheader->getTerminator();
        if (!Expander.isSafeToExpandAt(Trips, at))
            return false;
        for (const Family &family : Families) {
            if (!SE.isLoopInvariant(family.Start, &L) || !SE.isLoopInvariant(family.Step, &L) ||
                !Expander.isSafeToExpandAt(family.Start, at) || !Expander.isSafeToExpandAt(family.Step, at))
                return false;
        }
        return Families.size() + Ranges.size() * Hoisted.size() <= MaxChecks;
    }

    // True when no sum wraps and no store touches a slot. Emitted at the end of the preheader.
    Value *emitChecks() {
        Instruction *at = Preheader->getTerminator();
        IRBuilder<> builder(at);
        auto expand = [&](const SCEV *expression, Type *type) {
            return Expander.expandCodeFor(expression, type, at->getIterator());
        };
        Value *largest = builder.getInt64(UINT32_MAX);
        Value *trips = expand(wideTrips(), wide());
        Value *good = nullptr;
        auto require = [&](Value *condition) { good = good ? builder.CreateAnd(good, condition) : condition; };
        if (SE.getUnsignedRangeMax(wideTrips()).ugt(UINT32_MAX))
            require(builder.CreateICmpULE(trips, largest));
        for (Family &family : Families) {
            family.First = expand(family.Signed ? SE.getSignExtendExpr(family.Start, wide())
                                                : SE.getZeroExtendExpr(family.Start, wide()),
                                  wide());
            Value *step = expand(SE.getSignExtendExpr(family.Step, wide()), wide());
            // |step| <= 2^31 and trips < 2^32: this does not wrap. The recurrence is monotonic, so its ends tell.
            family.Last = builder.CreateAdd(family.First, builder.CreateMul(step, trips));
            auto fits = [&](Value *end, int64_t distance) {
                // Signed values are moved by 2^31, so that one comparison tells.
                if (int64_t moved = distance + (family.Signed ? int64_t(1) << 31 : 0))
                    end = builder.CreateAdd(end, builder.getInt64(moved));
                require(builder.CreateICmpULE(end, largest));
            };
            const auto *constant = dyn_cast<SCEVConstant>(family.Step);
            bool mayRise = !constant || constant->getAPInt().isNonNegative();
            bool mayFall = !constant || constant->getAPInt().isNegative();
            fits(family.Last, mayRise ? family.Most : family.Least);
            if (mayRise && family.Least < 0)
                fits(family.First, family.Least);
            if (mayFall && family.Most > 0)
                fits(family.First, family.Most);
            if (mayRise && mayFall)
                fits(family.Last, family.Least);
        }
        for (const Range &range : Ranges) {
            Value *base = builder.CreatePtrToInt(range.Base, wide());
            Value *low = base, *high = base;
            if (range.Moving) {
                Value *first = range.Moving->First, *last = range.Moving->Last;
                if (cast<SCEVConstant>(range.Moving->Step)->getAPInt().isNegative())
                    std::swap(first, last);
                low = builder.CreateAdd(base, first);
                high = builder.CreateAdd(base, last);
            }
            low = builder.CreateAdd(low, builder.getInt64(range.Low));
            high = builder.CreateAdd(high, builder.getInt64(range.High));
            for (LoadInst *slot : Hoisted) {
                Value *start = builder.CreatePtrToInt(slot->getPointerOperand(), wide());
                Value *end = builder.CreateAdd(start, builder.getInt64(4));
                require(builder.CreateOr(builder.CreateICmpULE(high, start), builder.CreateICmpULE(end, low)));
            }
        }
        return good;
    }

    void version() {
        Value *good = emitChecks();
        BasicBlock *check = Preheader;
        BasicBlock *fastEntry = SplitBlock(check, check->getTerminator()->getIterator(), &Dominators, &Loops);
        ValueToValueMapTy map;
        SmallVector<BasicBlock *, 8> slowBlocks;
        Loop *slow = cloneLoopWithPreheader(fastEntry, check, &L, map, ".wrapping", &Loops, &Dominators, slowBlocks);
        remapInstructionsInBlocks(slowBlocks, map);
        Instruction *jump = check->getTerminator();
        BranchInst::Create(fastEntry, slow->getLoopPreheader(), good, jump->getIterator());
        jump->eraseFromParent();

        SmallVector<BasicBlock *, 4> exits;
        L.getUniqueExitBlocks(exits);
        for (BasicBlock *exit : exits) {
            for (PHINode &phi : exit->phis()) {
                for (unsigned i = 0, n = phi.getNumIncomingValues(); i < n; ++i) {
                    BasicBlock *from = phi.getIncomingBlock(i);
                    if (!L.contains(from))
                        continue;
                    Value *value = phi.getIncomingValue(i);
                    Value *copy = map.lookup(value);
                    phi.addIncoming(copy ? copy : value, cast<BasicBlock>(map.lookup(from)));
                }
            }
        }
        Dominators.recalculate(*check->getParent());
        formDedicatedExitBlocks(&L, &Dominators, &Loops, nullptr, true);
        formDedicatedExitBlocks(slow, &Dominators, &Loops, nullptr, true);
        // The original is the rare version: leave it alone.
        slow->setLoopID(rareLoop(slow->getHeader()->getContext()));

        for (Family &family : Families)
            build(family);
        for (const Sum &sum : Sums) {
            Value *value = Families[sum.Family].Recurrence;
            if (sum.Distance) {
                IRBuilder<> builder(L.getHeader(), L.getHeader()->getFirstInsertionPt());
                value = builder.CreateAdd(value, builder.getInt64(sum.Distance), "address", false, /*NSW=*/true);
            }
            sum.Value->replaceAllUsesWith(value);
        }
        for (auto [slot, copy] : Slots) {
            slot->replaceAllUsesWith(copy);
            slot->eraseFromParent();
        }
        SE.forgetLoop(&L);
    }

    void build(Family &family) {
        BasicBlock *header = L.getHeader(), *entry = L.getLoopPreheader(), *latch = L.getLoopLatch();
        Value *step = Expander.expandCodeFor(SE.getSignExtendExpr(family.Step, wide()), wide(),
                                             entry->getTerminator()->getIterator());
        IRBuilder<> builder(header, header->begin());
        family.Recurrence = builder.CreatePHI(wide(), 2, "address");
        builder.SetInsertPoint(latch->getTerminator());
        // The value after the last iteration may lie beyond 32 bits, never beyond 64.
        Value *next = builder.CreateAdd(family.Recurrence, step, "address.next", /*NUW=*/false, /*NSW=*/true);
        family.Recurrence->addIncoming(family.First, entry);
        family.Recurrence->addIncoming(next, latch);
    }

    Loop &L;
    LoopInfo &Loops;
    DominatorTree &Dominators;
    ScalarEvolution &SE;
    SCEVExpander Expander;
    BasicBlock *Preheader = nullptr;
    const SCEV *Trips = nullptr;
    unsigned Size = 0;
    bool OnlySimpleStores = true;
    SmallVector<Instruction *, 16> Accesses;
    SmallVector<StoreInst *, 8> Stores;
    SmallVector<std::pair<LoadInst *, LoadInst *>, 4> Slots; // with their copies before the loop
    SmallVector<LoadInst *, 2> Hoisted;
    ValueToSCEVMapTy SlotValues;
    SmallVector<Sum, 8> Sums;
    SmallVector<Family, 4> Families;
    SmallVector<Range, 4> Ranges;
};

} // namespace

PreservedAnalyses SlotLoopPass::run(Loop &loop, LoopAnalysisManager &, LoopStandardAnalysisResults &, LPMUpdater &) {
    BasicBlock *block = loop.getHeader();
    if (!loop.isInnermost() || loop.getNumBlocks() != 1 || block->size() > MaxSlotLoop)
        return PreservedAnalyses::all();
    for (Instruction &instruction : *block) {
        auto *store = dyn_cast<StoreInst>(&instruction);
        if (!store || !store->getValueOperand()->getType()->isIntegerTy(8) || !isGuestAccess(*store))
            continue;
        // gep base, zext(load(slot) + i), perhaps with constants on the way
        Value *pointer = store->getPointerOperand();
        for (unsigned steps = 0; steps < 8; ++steps) {
            auto *step = dyn_cast<Instruction>(pointer);
            if (auto *load = dyn_cast_or_null<LoadInst>(step); load && loop.isLoopInvariant(load->getPointerOperand())) {
                addStringMetadataToLoop(&loop, "llvm.loop.unroll.disable", 1);
                return PreservedAnalyses::all();
            }
            if (!step || isa<PHINode>(step) || step->getNumOperands() == 0)
                break;
            // The sum's other side is the counter.
            unsigned operand = step->getNumOperands() > 1 && isa<GetElementPtrInst>(step) &&
                               loop.isLoopInvariant(step->getOperand(0));
            if (step->getOpcode() == Instruction::Add && isa<PHINode>(step->getOperand(0)))
                operand = 1;
            pointer = step->getOperand(operand);
        }
    }
    return PreservedAnalyses::all();
}

PreservedAnalyses AddressPass::run(Function &function, FunctionAnalysisManager &analyses) {
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
    unsigned cloned = 0;
    for (Loop *loop : innermost) {
        unsigned size = Widening(*loop, loops, dominators, evolution).run();
        cloned += size;
        Statistics->loops_widened += size != 0;
        if (cloned > MaxClonedInstructions)
            break;
    }
    return cloned || changed ? PreservedAnalyses::none() : PreservedAnalyses::all();
}

} // namespace mote
