// Functions whose addresses do not wrap.
//
// Outside loops an address is a parameter, or the stack pointer that the function found, and a constant:
// `zext(p + 24)`. LLVM cannot split that sum, for it may wrap; so each address costs an instruction and a register, two
// neighbours are not neighbours to the SLP vectoriser, and what is stored in a frame is loaded again. This pass finds the
// values that a function has when it is entered and the range of what it adds to each, and checks on entry that none of the
// sums can wrap. The body is cloned: in the fast version the sums are done in 64 bits, the original stays for
// when the check fails (a pointer within some bytes of 4 GiB, or of zero where something is subtracted).
//
// It runs while witnesses are in place, so that the passes it runs after itself may simplify what has become visible.
#include "passes.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/IR/PatternMatch.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/DeadStoreElimination.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/GVN.h"
#include "llvm/Transforms/Scalar/LICM.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/LoopUtils.h"

using namespace llvm;

namespace mote {

namespace {

// Sums that make a clone worth while, and what may be cloned.
constexpr unsigned MinSums = 6;
constexpr unsigned MaxInstructions = 4000;
constexpr unsigned MaxBases = 6;
// How far a sum may lie from its base.
constexpr int64_t MaxDistance = 1 << 28;

// What a function has on entry, and the least and the most that it adds to it.
struct Base {
    SmallVector<Value *, 2> Terms; // i32: parameters, and loads of the context
    int64_t Least = 0, Most = 0;
};

struct Sum {
    ZExtInst *Extension;
    size_t Base;
    std::optional<int64_t> Constant;
};

class Frames {
public:
    Frames(Function &function, ScalarEvolution &evolution, LoopInfo &loops)
        : F(function), SE(evolution), Loops(loops) {}

    bool run() {
        if (!mayClone())
            return false;
        findAvailable();
        for (BasicBlock &block : F) {
            for (Instruction &instruction : block) {
                if (auto *extension = dyn_cast<ZExtInst>(&instruction); extension && isAddress(*extension))
                    addSum(*extension);
            }
        }
        unsigned useful = 0;
        for (const Sum &sum : Sums)
            useful += !sum.Constant || *sum.Constant != 0;
        if (useful < MinSums || Bases.size() > MaxBases)
            return false;
        version();
        return true;
    }

private:
    bool mayClone() {
        if (F.getInstructionCount() > MaxInstructions || F.isVarArg())
            return false;
        for (Instruction &instruction : instructions(F)) {
            if (isa<IndirectBrInst>(instruction) || instruction.isEHPad())
                return false;
            if (const auto *call = dyn_cast<CallBase>(&instruction); call && call->cannotDuplicate())
                return false;
            if (const auto *allocation = dyn_cast<AllocaInst>(&instruction);
                allocation && !allocation->isStaticAlloca())
                return false;
        }
        return none_of(F, [](const BasicBlock &block) { return block.hasAddressTaken(); });
    }

    // Parameters, and words of the context that are read before anything could have changed them.
    void findAvailable() {
        for (Argument &argument : F.args()) {
            if (argument.getType()->isIntegerTy(32))
                Available.insert(&argument);
        }
        for (Instruction &instruction : F.getEntryBlock()) {
            auto *load = dyn_cast<LoadInst>(&instruction);
            if (load && load->isSimple() && load->getType()->isIntegerTy(32) && !isGuestAccess(*load) &&
                isContextField(load->getPointerOperand()))
                Available.insert(load);
            if (instruction.mayWriteToMemory() && !isWitness(instruction) && !isGuestAccess(instruction))
                break;
            if (!isGuaranteedToTransferExecutionToSuccessor(&instruction))
                break;
        }
    }

    bool isContextField(Value *pointer) {
        auto *step = dyn_cast<GetElementPtrInst>(pointer);
        return step && F.arg_size() > 0 && step->getPointerOperand() == F.getArg(0) && step->hasAllConstantIndices();
    }

    static bool isAddress(ZExtInst &extension) {
        if (!extension.getType()->isIntegerTy(64) || !extension.getSrcTy()->isIntegerTy(32))
            return false;
        return any_of(extension.users(), [](User *user) {
            if (isa<GetElementPtrInst>(user))
                return true;
            return isa<BinaryOperator>(user) &&
                   any_of(user->users(), [](User *next) { return isa<GetElementPtrInst>(next); });
        });
    }

    // Splits a sum into terms of the base and the rest; false when a term is neither.
    void split(const SCEV *expression, SmallVectorImpl<Value *> &terms, SmallVectorImpl<const SCEV *> &rest) {
        if (const auto *sum = dyn_cast<SCEVAddExpr>(expression)) {
            for (const SCEV *operand : sum->operands())
                split(operand, terms, rest);
        } else if (const auto *recurrence = dyn_cast<SCEVAddRecExpr>(expression); recurrence && recurrence->isAffine()) {
            split(recurrence->getStart(), terms, rest);
            rest.push_back(SE.getAddRecExpr(SE.getZero(expression->getType()), recurrence->getStepRecurrence(SE),
                                            recurrence->getLoop(), SCEV::FlagAnyWrap));
        } else if (const auto *unknown = dyn_cast<SCEVUnknown>(expression);
                   unknown && Available.contains(unknown->getValue())) {
            terms.push_back(unknown->getValue());
        } else {
            rest.push_back(expression);
        }
    }

    void addSum(ZExtInst &extension) {
        Sum sum{&extension, 0, std::nullopt};
        SmallVector<Value *, 2> terms;
        SmallVector<const SCEV *, 4> parts;
        split(SE.getSCEV(extension.getOperand(0)), terms, parts);
        if (terms.empty() || terms.size() > 2)
            return;
        // The parts' bounds add up; a part's own recurrence may wrap, which its range covers.
        int64_t least = 0, most = 0;
        bool isConstant = true;
        for (const SCEV *part : parts) {
            ConstantRange range = SE.getSignedRange(part);
            if (range.isFullSet() || range.isEmptySet())
                return;
            least += range.getSignedMin().getSExtValue();
            most += range.getSignedMax().getSExtValue();
            isConstant &= isa<SCEVConstant>(part);
        }
        if (least < -MaxDistance || most > MaxDistance)
            return;
        if (isConstant)
            sum.Constant = least;
        sort(terms);
        auto *base = find_if(Bases, [&](const Base &other) { return other.Terms == terms; });
        if (base == Bases.end()) {
            Bases.push_back({terms});
            base = std::prev(Bases.end());
        }
        base->Least = std::min(base->Least, least);
        base->Most = std::max(base->Most, most);
        sum.Base = size_t(base - Bases.begin());
        Sums.push_back(sum);
    }

    void version() {
        LLVMContext &context = F.getContext();
        BasicBlock *fast = &F.getEntryBlock();
        SmallVector<BasicBlock *, 32> blocks(make_pointer_range(F));
        SmallVector<Loop *, 8> loops = Loops.getLoopsInPreorder();
        BasicBlock *check = BasicBlock::Create(context, "check", &F, fast);
        for (Instruction &instruction : make_early_inc_range(*fast)) {
            if (isa<AllocaInst>(instruction))
                instruction.moveBefore(*check, check->end());
        }
        ValueToValueMapTy map;
        SmallVector<BasicBlock *, 32> copies;
        for (BasicBlock *block : blocks) {
            BasicBlock *copy = CloneBasicBlock(block, map, ".wrapping", &F);
            map[block] = copy;
            copies.push_back(copy);
        }
        remapInstructionsInBlocks(copies, map);
        for (Loop *loop : loops) {
            SmallVector<BasicBlock *, 2> latches;
            loop->getLoopLatches(latches);
            for (BasicBlock *latch : latches)
                cast<BasicBlock>(map[latch])->getTerminator()->setMetadata(LLVMContext::MD_loop, rareLoop(context));
        }

        IRBuilder<> builder(check);
        Type *narrow = builder.getInt32Ty(), *wide = builder.getInt64Ty();
        DenseMap<Value *, Value *> early;
        auto onEntry = [&](Value *term) {
            Value *&value = early[term];
            if (auto *load = dyn_cast<LoadInst>(term); load && !value) {
                auto *pointer = cast<Instruction>(load->getPointerOperand())->clone();
                auto *copy = cast<LoadInst>(load->clone());
                builder.Insert(pointer);
                copy->setOperand(0, pointer);
                value = builder.Insert(copy);
            } else if (!value) {
                value = term;
            }
            return value;
        };
        Value *good = builder.getTrue();
        SmallVector<std::pair<Value *, Value *>, MaxBases> starts; // in 32 and in 64 bits
        for (const Base &base : Bases) {
            Value *start = onEntry(base.Terms.front());
            for (Value *term : drop_begin(base.Terms))
                start = builder.CreateAdd(start, onEntry(term));
            if (base.Most > 0) {
                auto limit = uint32_t(UINT32_MAX - base.Most);
                good = builder.CreateAnd(good, builder.CreateICmpULE(start, ConstantInt::get(narrow, limit)));
            }
            if (base.Least < 0)
                good = builder.CreateAnd(good,
                                         builder.CreateICmpUGE(start, ConstantInt::get(narrow, uint32_t(-base.Least))));
            starts.push_back({start, builder.CreateZExt(start, wide)});
        }
        MDNode *weights = MDBuilder(context).createBranchWeights(1u << 20, 1);
        builder.CreateCondBr(good, fast, cast<BasicBlock>(map[fast]), weights);

        for (const Sum &sum : Sums) {
            auto [start, wideStart] = starts[sum.Base];
            builder.SetInsertPoint(sum.Extension);
            Value *distance = sum.Constant
                                  ? builder.getInt64(*sum.Constant)
                                  : builder.CreateSExt(builder.CreateSub(sum.Extension->getOperand(0), start), wide);
            Value *value = builder.CreateAdd(wideStart, distance, "", /*NUW=*/sum.Constant && *sum.Constant >= 0,
                                             /*NSW=*/true);
            sum.Extension->replaceAllUsesWith(value);
            sum.Extension->eraseFromParent();
        }
    }

    Function &F;
    ScalarEvolution &SE;
    LoopInfo &Loops;
    SmallPtrSet<Value *, 8> Available;
    SmallVector<Base, 4> Bases;
    SmallVector<Sum, 32> Sums;
};

} // namespace

MDNode *rareLoop(LLVMContext &context) {
    auto flag = [&](StringRef name, bool on) {
        return MDNode::get(context, {MDString::get(context, name),
                                     ConstantAsMetadata::get(ConstantInt::getBool(context, on))});
    };
    SmallVector<Metadata *, 5> operands{nullptr, flag(RareLoop, true), flag("llvm.loop.vectorize.enable", false),
                                        flag("llvm.loop.unroll.disable", true),
                                        flag("llvm.loop.distribute.enable", false)};
    MDNode *node = MDNode::getDistinct(context, operands);
    node->replaceOperandWith(0, node);
    return node;
}

PreservedAnalyses FramePass::run(Function &function, FunctionAnalysisManager &analyses) {
    if (function.hasFnAttribute(TierAttribute) || function.hasOptSize())
        return PreservedAnalyses::all();
    Frames frames(function, analyses.getResult<ScalarEvolutionAnalysis>(function),
                  analyses.getResult<LoopAnalysis>(function));
    if (!frames.run())
        return PreservedAnalyses::all();
    ++Statistics->functions_widened;
    analyses.invalidate(function, PreservedAnalyses::none());
    FunctionPassManager passes;
    passes.addPass(InstCombinePass());
    passes.addPass(EarlyCSEPass(/*UseMemorySSA=*/true));
    passes.addPass(GVNPass());
    passes.addPass(DSEPass());
    passes.addPass(createFunctionToLoopPassAdaptor(LICMPass(LICMOptions()), /*UseMemorySSA=*/true));
    passes.addPass(InstCombinePass());
    passes.addPass(SimplifyCFGPass());
    passes.run(function, analyses);
    return PreservedAnalyses::none();
}

} // namespace mote
