// Traps never lost.
//
// WebAssembly says that a load outside the memory traps, whether or not its value is used; LLVM says that a load whose
// value is not used may be deleted, narrowed, or moved to the one path that uses it. So the front end emits a *witness*
// after each plain load: a call that takes the value and writes memory that nothing else sees. It keeps the load alive
// and in place, and neither alias analysis nor GVN, LICM, SROA or the inliner (its cost is declared zero) minds it.
//
// The vectorisers would mind it, so witnesses go right before them. From there on, a load stays put if its value is
// *certainly needed*: on every path from the load, within what LLVM could move it across, the value flows into a store, a
// call, a branch, a return or another access's address. Any other load becomes volatile, which LLVM neither deletes,
// narrows nor moves. Only the last byte of an access decides whether it traps, so a load whose top byte nobody needs is
// such a load too: code generation would narrow it.
#include "passes.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/Analysis/DemandedBits.h"
#include "llvm/Analysis/PostDominators.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/PatternMatch.h"

using namespace llvm;

namespace mote {

namespace {

constexpr StringLiteral WitnessPrefix = "mote.witness.";
constexpr const char *WitnessAttribute = "mote-witness";
// How many values one question may touch, and how far a look at neighbours goes, before the answer is "volatile".
constexpr size_t MaxNodes = 400;
constexpr unsigned MaxNeighbours = 32;

} // namespace

bool isWitness(const Instruction &instruction) {
    const auto *call = dyn_cast<CallInst>(&instruction);
    return call && call->getCalledFunction() && call->getCalledFunction()->hasFnAttribute(WitnessAttribute);
}

bool isGuestAccess(const Instruction &instruction) {
    const MDNode *tag = instruction.getMetadata(LLVMContext::MD_tbaa);
    if (!tag) {
        const Value *pointer = getLoadStorePointerOperand(&instruction);
        return pointer && !isa<AllocaInst>(getUnderlyingObject(pointer)) &&
               !instruction.hasMetadata(LLVMContext::MD_invariant_load);
    }
    if (tag->getNumOperands() < 2)
        return false;
    const auto *access = dyn_cast_or_null<MDNode>(tag->getOperand(1));
    if (!access || access->getNumOperands() < 1)
        return false;
    const auto *name = dyn_cast_or_null<MDString>(access->getOperand(0));
    return name && name->getString() == "memory";
}

PreservedAnalyses PreparePass::run(Module &module, ModuleAnalysisManager &) {
    LLVMContext &context = module.getContext();
    for (Function &function : module) {
        if (function.isDeclaration() && function.getName().starts_with(WitnessPrefix)) {
            function.setMemoryEffects(MemoryEffects::inaccessibleMemOnly(ModRefInfo::Mod));
            for (auto kind : {Attribute::NoUnwind, Attribute::WillReturn, Attribute::NoSync, Attribute::NoFree,
                              Attribute::NoCallback, Attribute::NoRecurse})
                function.addFnAttr(kind);
            function.addFnAttr(WitnessAttribute);
            // The inliner would count a call with its penalty.
            function.addFnAttr("call-inline-cost", "0");
            // Cost models take a function without a name for one that does not become a call.
            function.setName("");
        } else if (!function.isDeclaration()) {
            // A wasm call uses stack: endless recursion ends in a trap, not in a loop. `musttail` is not affected.
            function.addFnAttr(Attribute::get(context, "disable-tail-calls", "true"));
        }
    }
    for (Function &function : module) {
        for (Instruction &instruction : instructions(function)) {
            const auto *load = dyn_cast<LoadInst>(&instruction);
            if (!load || !load->isSimple() || !isGuestAccess(*load))
                continue;
            ++Statistics->guest_loads;
            Statistics->without_witness += none_of(load->users(), [](const User *user) {
                const auto *call = dyn_cast<Instruction>(user);
                return call && isWitness(*call);
            });
        }
    }
    return PreservedAnalyses::none();
}

namespace {

// Answers whether a load's value is certainly needed. The value and those computed from it are nodes; a node is needed if one
// of its clauses holds; a clause holds if all its nodes are needed; an empty clause is a use with an effect. Cycles through
// loops are taken as needed (greatest fixed point) provided that an effect is reached at all.
class Need {
public:
    Need(const PostDominatorTree &postDominators) : PostDominators(postDominators) {}

    bool isCertain(LoadInst &load) {
        Nodes.clear();
        Numbers.clear();
        ReachesEffect = false;
        if (!number(&load))
            return false;
        for (size_t at = 0; at < Nodes.size(); ++at) {
            if (Nodes[at].Value)
                expand(at);
            if (Nodes.size() > MaxNodes)
                return false;
        }
        if (!ReachesEffect)
            return false;
        for (bool changed = true; changed;) {
            changed = false;
            for (Node &node : Nodes) {
                if (!node.Needed)
                    continue;
                node.Needed = any_of(node.Clauses, [&](const auto &clause) {
                    return all_of(clause, [&](size_t number) { return Nodes[number].Needed; });
                });
                changed |= !node.Needed;
            }
        }
        return Nodes[0].Needed;
    }

private:
    struct Node {
        Instruction *Value; // null for "one of these, on this edge"
        bool Needed = true;
        SmallVector<SmallVector<size_t, 2>, 2> Clauses;
    };

    enum class Use { None, Effect, Chain };

    static bool isEffectOfBranch(const Instruction &terminator) {
        // A branch whose ways meet again with nothing between is about to disappear.
        const BasicBlock *meeting = nullptr;
        for (const BasicBlock *successor : successors(&terminator)) {
            unsigned steps = 0;
            while (successor->size() == 1 && successor->getSingleSuccessor() && steps++ < 8)
                successor = successor->getSingleSuccessor();
            if (meeting && meeting != successor)
                return true;
            meeting = successor;
        }
        return meeting && isa<PHINode>(meeting->front());
    }

    // What `user` does with operand `value`.
    static Use classify(const llvm::Use &use) {
        const auto *user = cast<Instruction>(use.getUser());
        const Value *value = use.get();
        if (isWitness(*user))
            return Use::None;
        if (isa<StoreInst>(user) || isa<AtomicRMWInst>(user) || isa<AtomicCmpXchgInst>(user) || isa<ReturnInst>(user))
            return Use::Effect;
        if (const auto *load = dyn_cast<LoadInst>(user)) // a guest load's own trap is kept
            return isGuestAccess(*load) || load->isVolatile() ? Use::Effect : Use::Chain;
        if (isa<BranchInst>(user) || isa<SwitchInst>(user))
            return isEffectOfBranch(*user) ? Use::Effect : Use::None;
        if (user->isTerminator())
            return Use::Effect;
        if (const auto *call = dyn_cast<CallBase>(user)) {
            if (const auto *intrinsic = dyn_cast<IntrinsicInst>(call); intrinsic && intrinsic->isAssumeLikeIntrinsic())
                return Use::None;
            return call->mayHaveSideEffects() ? Use::Effect : Use::Chain;
        }
        // Code generation follows the bits of lanes through changes of their width, which IR does not: after
        // `i8x16.abs` of sign-extended lanes it knows the sign that `i32x4.bitmask` asks for.
        if (const auto *compare = dyn_cast<ICmpInst>(user); compare && value->getType()->isVectorTy() &&
                                                            (match(compare->getOperand(1), PatternMatch::m_Zero()) ||
                                                             match(compare->getOperand(1), PatternMatch::m_AllOnes())) &&
                                                            compare->isSigned())
            return Use::None;
        // Code generation makes branches of selects and moves an arm's computation into them.
        if (isa<SelectInst>(user))
            return use.getOperandNo() == 0 ? Use::Chain : Use::None;
        // A vector may be narrowed to the lanes in use: the last one must be.
        if (const auto *type = dyn_cast<FixedVectorType>(value->getType())) {
            unsigned last = type->getNumElements() - 1;
            if (const auto *extract = dyn_cast<ExtractElementInst>(user)) {
                const auto *index = dyn_cast<ConstantInt>(extract->getIndexOperand());
                return index && index->getZExtValue() == last ? Use::Chain : Use::None;
            }
            if (const auto *insert = dyn_cast<InsertElementInst>(user)) {
                const auto *index = dyn_cast<ConstantInt>(insert->getOperand(2));
                return index && index->getZExtValue() != last ? Use::Chain : Use::None;
            }
            if (const auto *shuffle = dyn_cast<ShuffleVectorInst>(user)) {
                int wanted = int(use.getOperandNo() * type->getNumElements() + last);
                return is_contained(shuffle->getShuffleMask(), wanted) ? Use::Chain : Use::None;
            }
        }
        return Use::Chain;
    }

    std::optional<size_t> number(Instruction *value) {
        auto [found, added] = Numbers.try_emplace(value, Nodes.size());
        if (added)
            Nodes.push_back({value, true, {}});
        return found->second;
    }

    void addUse(size_t node, const llvm::Use &use) {
        auto *user = cast<Instruction>(use.getUser());
        switch (classify(use)) {
        case Use::None:
            return;
        case Use::Effect:
            ReachesEffect = true;
            Nodes[node].Clauses.push_back({});
            return;
        case Use::Chain: {
            size_t next = *number(user);
            Nodes[node].Clauses.push_back({next});
            return;
        }
        }
    }

    void expand(size_t at) {
        Instruction *value = Nodes[at].Value;
        BasicBlock *block = value->getParent();
        SmallDenseMap<BasicBlock *, size_t, 4> edges;
        for (const llvm::Use &use : value->uses()) {
            auto *user = cast<Instruction>(use.getUser());
            auto *phi = dyn_cast<PHINode>(user);
            if (!phi && PostDominators.dominates(user->getParent(), block)) {
                addUse(at, use);
                continue;
            }
            // Needed on this one edge out of the block?
            if (phi ? phi->getIncomingBlock(use) != block : !is_contained(successors(block), user->getParent()))
                continue;
            auto [edge, added] = edges.try_emplace(user->getParent(), Nodes.size());
            if (added)
                Nodes.push_back({nullptr, true, {}});
            size_t number = edge->second;
            addUse(number, use);
        }
        SmallVector<size_t, 2> everyEdge;
        for (BasicBlock *successor : successors(block)) {
            auto edge = edges.find(successor);
            if (edge == edges.end())
                return;
            everyEdge.push_back(edge->second);
        }
        if (!everyEdge.empty())
            Nodes[at].Clauses.push_back(everyEdge);
    }

    const PostDominatorTree &PostDominators;
    SmallVector<Node, 0> Nodes;
    DenseMap<Instruction *, size_t> Numbers;
    bool ReachesEffect = false;
};

// Code generation narrows a load to the bytes in use.
bool mayBeNarrowed(LoadInst &load, DemandedBits &demanded) {
    auto *type = dyn_cast<IntegerType>(load.getType());
    return type && type->getBitWidth() > 8 && demanded.getDemandedBits(&load).countl_zero() >= 8;
}

// Code generation narrows a load, an operation with a constant and a store to the same place, to the bytes that change; it
// leaves a volatile store alone (it does not look at the load).
void keepWidthOfUpdate(LoadInst &load) {
    auto *type = dyn_cast<IntegerType>(load.getType());
    if (!type || type->getBitWidth() <= 8)
        return;
    auto hold = [&](User *user) {
        auto *store = dyn_cast<StoreInst>(user);
        if (store && store->isSimple() && store->getPointerOperand() == load.getPointerOperand())
            store->setVolatile(true);
    };
    for (User *user : load.users()) {
        auto *operation = dyn_cast<BinaryOperator>(user);
        if (!operation || !operation->isBitwiseLogicOp())
            continue;
        auto *constant = dyn_cast<ConstantInt>(operation->getOperand(operation->getOperand(0) == &load));
        if (!constant)
            continue;
        const APInt &bits = constant->getValue();
        bool topIsKept = operation->getOpcode() == Instruction::And ? bits.countl_one() >= 8 : bits.countl_zero() >= 8;
        if (!topIsKept)
            continue;
        for (User *next : operation->users()) {
            hold(next);
            if (isa<BinaryOperator>(next)) {
                for (User *last : next->users())
                    hold(last);
            }
        }
    }
}

// An access to the same bytes that traps in this one's place: next in the block, with nothing observable between.
bool neighbourTraps(LoadInst &load, const SmallPtrSetImpl<LoadInst *> &weak) {
    const DataLayout &layout = load.getModule()->getDataLayout();
    TypeSize size = layout.getTypeStoreSize(load.getType());
    unsigned seen = 0;
    for (Instruction *next = load.getNextNode(); next && seen < MaxNeighbours; next = next->getNextNode(), ++seen) {
        if (getLoadStorePointerOperand(next) == load.getPointerOperand()) {
            Type *type = getLoadStoreType(next);
            auto *other = dyn_cast<LoadInst>(next);
            if (TypeSize::isKnownGE(layout.getTypeStoreSize(type), size) && !(other && weak.contains(other)))
                return true;
        }
        if (next->mayHaveSideEffects() || next->isTerminator())
            return false;
    }
    return false;
}

} // namespace

PreservedAnalyses WitnessPass::run(Function &function, FunctionAnalysisManager &analyses) {
    SmallVector<Instruction *> witnesses;
    SmallVector<LoadInst *> loads;
    for (Instruction &instruction : instructions(function)) {
        if (isWitness(instruction))
            witnesses.push_back(&instruction);
        else if (auto *load = dyn_cast<LoadInst>(&instruction); load && load->isSimple() && isGuestAccess(*load))
            loads.push_back(load);
    }
    if (witnesses.empty() && loads.empty())
        return PreservedAnalyses::all();
    Statistics->witnesses += witnesses.size();
    for (Instruction *witness : witnesses)
        witness->eraseFromParent();
    if (EveryLoad) {
        for (LoadInst *load : loads)
            load->setVolatile(true);
        Statistics->made_volatile += loads.size();
        PreservedAnalyses preserved;
        preserved.preserveSet<CFGAnalyses>();
        return preserved;
    }
    // Only the control flow's shape has been kept: DemandedBits must not have seen the witnesses.
    PreservedAnalyses preserved;
    preserved.preserveSet<CFGAnalyses>();
    analyses.invalidate(function, preserved);
    auto &demanded = analyses.getResult<DemandedBitsAnalysis>(function);
    Need need(analyses.getResult<PostDominatorTreeAnalysis>(function));

    SmallPtrSet<LoadInst *, 16> weak, narrow;
    for (LoadInst *load : loads) {
        if (mayBeNarrowed(*load, demanded))
            narrow.insert(load);
        else if (!need.isCertain(*load))
            weak.insert(load);
        keepWidthOfUpdate(*load);
    }
    for (LoadInst *load : loads) {
        if (narrow.contains(load)) {
            load->setVolatile(true);
            ++Statistics->made_volatile;
        } else if (!weak.contains(load)) {
            ++Statistics->kept_plain;
        } else if (neighbourTraps(*load, weak)) {
            ++Statistics->kept_plain;
        } else {
            load->setVolatile(true);
            ++Statistics->made_volatile;
        }
    }
    return preserved;
}

} // namespace mote
