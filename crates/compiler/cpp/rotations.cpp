// Four chains of additions, exclusive ors and rotations that run side by side, computed as one chain of vectors.
//
// Stream ciphers and hashes of this kind (Salsa20, ChaCha20, BLAKE2, Argon2) keep a square of words and mix its columns, then
// its diagonals; the four columns are independent of each other. Written for a machine without vectors they are 16 local
// variables, more than there are registers. LLVM's SLP vectoriser starts from consecutive stores, which take the words row by row,
// and finds no four that were computed alike. The rotations tell: in a block where each rotation depends on a chain of earlier
// ones, those at the same depth, by the same distance, are the four lanes of one vector.
//
//   depth    the rotations on the longest way to a value within the block;
//   lane     a rotation has the lane of the one rotation of the depth before that it depends on;
//   node     four values that become one vector: an operation on nodes, a permutation of another node (where columns become
//            diagonals), a vector phi, or a gathering of scalars.
//
// The pass plans all nodes first, compares what they cost with what they replace, and only then changes the block.
#include "passes.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/PatternMatch.h"

using namespace llvm;
using namespace llvm::PatternMatch;

namespace mote {
namespace {

constexpr unsigned Lanes = 4;
// Eight depths are one round of a cipher; below four there is nothing to win.
constexpr unsigned MinDepths = 4;
constexpr unsigned MaxBlock = 8000; // instructions; bounds the pass's time
constexpr unsigned MaxRecursion = 32;
constexpr unsigned NoNode = ~0u;

using Tuple = std::array<Value *, Lanes>;
using Mask = std::array<int, Lanes>;

enum class Kind { Operation, Permutation, Phi, Constant, Gather };

struct Node {
    Kind What;
    Tuple Scalars;
    unsigned First = NoNode, Second = NoNode; // nodes of the operands, in the order of the first lane's instruction
    Mask Order{};                             // of a permutation
    unsigned After = 0;                       // the number of the instruction behind which it can stand
    Value *Vector = nullptr;
};

struct Place {
    unsigned Node;
    int Lane;
};

// The operand of a rotation by a constant.
Value *rotated(Value *value, const APInt *&distance) {
    Value *operand;
    if (match(value, m_FShl(m_Value(operand), m_Deferred(operand), m_APInt(distance))))
        return operand;
    return nullptr;
}

bool isRotation(Value *value) {
    const APInt *distance;
    return rotated(value, distance) != nullptr;
}

class BlockVectors {
public:
    BlockVectors(BasicBlock &block, Type *type)
        : Block(block), Word(type), Vector(FixedVectorType::get(type, Lanes)),
          Layout(block.getModule()->getDataLayout()) {}

    bool run() {
        if (!findDepths() || !assignLanes() || !plan() || !isCheaper())
            return false;
        emit();
        return true;
    }

private:
    // An operation that a vector can do on each lane as it stands.
    bool isArithmetic(const Value *value) const {
        const auto *operation = dyn_cast<BinaryOperator>(value);
        if (!operation || operation->getParent() != &Block || operation->getType() != Word)
            return false;
        switch (operation->getOpcode()) {
        case Instruction::Add:
        case Instruction::Sub:
        case Instruction::Mul:
        case Instruction::And:
        case Instruction::Or:
        case Instruction::Xor:
            return true;
        case Instruction::Shl:
        case Instruction::LShr:
            return isa<ConstantInt>(operation->getOperand(1));
        default:
            return false;
        }
    }

    unsigned depthOf(const Value *value) const { return Depth.lookup(value); }

    // Numbers the block, computes depths and groups the rotations; false when they are not four at each depth.
    bool findDepths() {
        unsigned number = 0;
        for (Instruction &instruction : Block) {
            Number[&instruction] = number++;
            if (instruction.mayWriteToMemory() || !isGuaranteedToTransferExecutionToSuccessor(&instruction))
                Effects.push_back(Number[&instruction]);
            bool rotation = instruction.getType() == Word && isRotation(&instruction);
            if (!rotation && !isArithmetic(&instruction))
                continue;
            unsigned depth = 0;
            for (Value *operand : instruction.operands())
                depth = std::max(depth, depthOf(operand));
            if (rotation) {
                if (++depth > Rotations.size())
                    Rotations.emplace_back();
                Rotations[depth - 1].push_back(&instruction);
            }
            Depth[&instruction] = depth;
        }
        return Rotations.size() >= MinDepths && all_of(Rotations, [](const auto &group) {
                   const APInt *distance, *other;
                   rotated(group[0], distance);
                   return group.size() == Lanes && all_of(group, [&](Value *value) {
                              rotated(value, other);
                              return *other == *distance;
                          });
               });
    }

    // The lowest address, relative to a common base, that a rotation's value is loaded from: neighbours in memory make
    // neighbouring lanes.
    int64_t lowestOffset(Value *value, const Value *&base) {
        int64_t lowest = INT64_MAX;
        SmallVector<Value *, 16> work{value};
        SmallPtrSet<Value *, 16> seen;
        while (!work.empty() && seen.size() < MaxRecursion) {
            auto *instruction = dyn_cast<Instruction>(work.pop_back_val());
            if (!instruction || instruction->getParent() != &Block || !seen.insert(instruction).second)
                continue;
            // A phi stands for what it is in the first iteration.
            const Value *leaf = instruction;
            if (auto *phi = dyn_cast<PHINode>(instruction); phi && isCarried(*phi))
                leaf = phi->getIncomingValue(phi->getBasicBlockIndex(&Block) ^ 1);
            if (auto *load = dyn_cast<LoadInst>(leaf)) {
                auto [from, offset] = addressOf(*load);
                if (base && from != base)
                    continue;
                base = from;
                lowest = std::min(lowest, offset);
            } else if (isArithmetic(instruction) || isRotation(instruction)) {
                work.append(instruction->op_begin(), instruction->op_end());
            }
        }
        return lowest;
    }

    std::pair<const Value *, int64_t> addressOf(const LoadInst &load) const {
        APInt offset(64, 0);
        const Value *base = load.getPointerOperand()->stripAndAccumulateConstantOffsets(Layout, offset, true);
        return {base, offset.getSExtValue()};
    }

    // The one rotation of the given depth that the operands of `value` lead to.
    Value *ancestor(Instruction *value, unsigned depth) const {
        Value *found = nullptr;
        SmallVector<Instruction *, 8> work{value};
        SmallPtrSet<Value *, 16> seen;
        while (!work.empty()) {
            for (Value *operand : work.pop_back_val()->operands()) {
                if (depthOf(operand) != depth || !seen.insert(operand).second)
                    continue;
                if (!isRotation(operand))
                    work.push_back(cast<Instruction>(operand));
                else if (found)
                    return nullptr;
                else
                    found = operand;
                if (seen.size() > MaxRecursion)
                    return nullptr;
            }
        }
        return found;
    }

    bool assignLanes() {
        const Value *base = nullptr;
        SmallVector<std::tuple<int64_t, unsigned, Instruction *>, Lanes> first;
        for (Instruction *rotation : Rotations[0])
            first.push_back({lowestOffset(rotation, base), Number.lookup(rotation), rotation});
        sort(first);
        DenseMap<const Value *, unsigned> lanes;
        for (auto [lane, key] : enumerate(first)) {
            Rotations[0][lane] = std::get<2>(key);
            lanes[std::get<2>(key)] = lane;
        }
        for (unsigned depth = 1; depth < Rotations.size(); ++depth) {
            SmallVector<Instruction *, Lanes> ordered(Lanes, nullptr);
            for (Instruction *rotation : Rotations[depth]) {
                Value *before = ancestor(rotation, depth);
                if (!before || ordered[lanes.lookup(before)])
                    return false;
                lanes[rotation] = lanes.lookup(before);
                ordered[lanes.lookup(before)] = rotation;
            }
            Rotations[depth] = ordered;
        }
        return true;
    }

    // What tells apart the two operands of a commutative operation, alike in all lanes. A phi counts as what it was in
    // the iteration before; a leaf is known by its users.
    using Trait = std::tuple<int, unsigned, size_t>;
    Trait traitOf(Value *value) const {
        auto *instruction = dyn_cast<Instruction>(value);
        if (!instruction)
            return {isa<Constant>(value) ? INT_MAX : INT_MIN, 0, 0};
        unsigned depth = depthOf(instruction);
        if (auto *phi = dyn_cast<PHINode>(instruction); phi && phi->getParent() == &Block) {
            if (phi->getBasicBlockIndex(&Block) >= 0) {
                const Value *next = phi->getIncomingValueForBlock(&Block);
                unsigned opcode = isa<Instruction>(next) ? cast<Instruction>(next)->getOpcode() : 0;
                return {int(depthOf(next)) - int(Rotations.size()) - 1, opcode, 0};
            }
        }
        size_t users = 0;
        if (depth == 0) {
            for (User *user : instruction->users()) {
                if (auto *operation = dyn_cast<Instruction>(user); operation && operation->getParent() == &Block)
                    users += hash_combine(operation->getOpcode(), depthOf(operation));
            }
        }
        return {int(depth), instruction->getOpcode(), users};
    }

    bool permutes(const Tuple &tuple, unsigned &node, Mask &order) const {
        for (auto [lane, value] : enumerate(tuple)) {
            auto place = Places.find(value);
            if (place == Places.end() || (lane > 0 && place->second.Node != node))
                return false;
            node = place->second.Node;
            order[lane] = place->second.Lane;
        }
        return true;
    }

    unsigned add(Node node) {
        Nodes.push_back(node);
        return Nodes.size() - 1;
    }

    unsigned record(Node node) {
        unsigned number = add(node);
        for (auto [lane, value] : enumerate(node.Scalars))
            Places[value] = {number, int(lane)};
        return number;
    }

    static Tuple operandsOf(ArrayRef<Instruction *> instructions, unsigned operand) {
        Tuple tuple;
        for (unsigned lane = 0; lane < Lanes; ++lane)
            tuple[lane] = instructions[lane]->getOperand(operand);
        return tuple;
    }

    // The node of four values, planned if need be.
    unsigned nodeOf(const Tuple &tuple, unsigned recursion = 0) {
        unsigned source = NoNode;
        Mask order;
        if (permutes(tuple, source, order)) {
            if (order == Mask{0, 1, 2, 3})
                return source;
            for (auto [number, node] : enumerate(Nodes)) {
                if (node.What == Kind::Permutation && node.First == source && node.Order == order)
                    return number;
            }
            return add({Kind::Permutation, tuple, source, NoNode, order, Nodes[source].After});
        }
        if (all_of(tuple, [](Value *value) { return isa<ConstantInt>(value); }))
            return add({Kind::Constant, tuple});
        if (any_of(tuple, [&](Value *value) { return Places.contains(value); }) || recursion > MaxRecursion)
            return gather(tuple);
        auto *first = dyn_cast<Instruction>(tuple[0]);
        for (unsigned lane = 0; lane < Lanes; ++lane) {
            auto *instruction = dyn_cast<Instruction>(tuple[lane]);
            if (!first || !instruction || instruction->getOpcode() != first->getOpcode() ||
                is_contained(ArrayRef<Value *>(tuple).take_front(lane), instruction))
                return gather(tuple);
        }
        if (isArithmetic(first))
            return operation(tuple, recursion);
        if (isa<PHINode>(first) && all_of(tuple, [&](Value *value) { return isCarried(*cast<PHINode>(value)); })) {
            unsigned number = record({Kind::Phi, tuple});
            Phis.push_back(number);
            return number;
        }
        return gather(tuple);
    }

    // A phi of a loop of one block.
    bool isCarried(const PHINode &phi) const {
        return phi.getParent() == &Block && phi.getNumIncomingValues() == 2 && phi.getBasicBlockIndex(&Block) >= 0;
    }

    unsigned operation(const Tuple &tuple, unsigned recursion) {
        Tuple left, right;
        for (unsigned lane = 0; lane < Lanes; ++lane) {
            auto *instruction = cast<Instruction>(tuple[lane]);
            if (!isArithmetic(instruction))
                return gather(tuple);
            left[lane] = instruction->getOperand(0);
            right[lane] = instruction->getOperand(1);
            if (instruction->isCommutative() && traitOf(right[lane]) < traitOf(left[lane]))
                std::swap(left[lane], right[lane]);
        }
        unsigned first = nodeOf(left, recursion + 1), second = nodeOf(right, recursion + 1);
        return record({Kind::Operation, tuple, first, second, {}, std::max(Nodes[first].After, Nodes[second].After)});
    }

    unsigned gather(const Tuple &tuple) {
        Node node{Kind::Gather, tuple};
        for (Value *value : tuple) {
            // A lane that is in a vector is taken out again behind it.
            if (auto place = Places.find(value); place != Places.end())
                node.After = std::max(node.After, Nodes[place->second.Node].After);
            else if (auto *instruction = dyn_cast<Instruction>(value); instruction && instruction->getParent() == &Block)
                node.After = std::max(node.After, Number.lookup(instruction));
        }
        return add(node);
    }

    bool plan() {
        for (auto &group : Rotations) {
            unsigned input = nodeOf(operandsOf(group, 0));
            record({Kind::Operation, operandsToTuple(group), input, NoNode, {}, Nodes[input].After});
        }
        // Planning what a phi becomes may meet further phis.
        for (unsigned at = 0; at < Phis.size(); ++at) {
            Tuple next;
            for (unsigned lane = 0; lane < Lanes; ++lane)
                next[lane] = cast<PHINode>(Nodes[Phis[at]].Scalars[lane])->getIncomingValueForBlock(&Block);
            unsigned node = nodeOf(next);
            Nodes[Phis[at]].Second = node;
        }
        // A scalar user must not stand before the vector that it takes its lane from.
        for (auto [value, place] : Places) {
            for (const User *user : value->users()) {
                const auto *instruction = cast<Instruction>(user);
                if (instruction->getParent() != &Block || Places.contains(instruction) || isa<PHINode>(instruction))
                    continue;
                if (Number.lookup(instruction) <= Nodes[place.Node].After)
                    return false;
            }
        }
        // Nor may a gathering stand before a vector that was planned later.
        for (auto [number, node] : enumerate(Nodes)) {
            if (node.What == Kind::Gather && any_of(node.Scalars, [&, at = number](Value *value) {
                    auto place = Places.find(value);
                    return place != Places.end() && place->second.Node > at;
                }))
                return false;
        }
        return true;
    }

    static Tuple operandsToTuple(ArrayRef<Instruction *> instructions) {
        Tuple tuple;
        copy(instructions, tuple.begin());
        return tuple;
    }

    // The number of loads that fetch the values, when they lie side by side in memory: 1 or 2; else 0.
    unsigned neighbours(const Tuple &tuple) const {
        SmallVector<std::pair<const Value *, int64_t>, Lanes> places;
        unsigned earliest = ~0u, latest = 0;
        for (Value *value : tuple) {
            auto *load = dyn_cast<LoadInst>(value);
            if (!load || !load->isSimple() || load->getParent() != &Block)
                return 0;
            places.push_back(addressOf(*load));
            earliest = std::min(earliest, Number.lookup(load));
            latest = std::max(latest, Number.lookup(load));
        }
        if (any_of(Effects, [&](unsigned effect) { return earliest < effect && effect < latest; }))
            return 0;
        int64_t bytes = Word->getIntegerBitWidth() / 8;
        auto follows = [&](unsigned lane) {
            return places[lane].first == places[lane - 1].first && places[lane].second == places[lane - 1].second + bytes;
        };
        if (!follows(1) || !follows(3))
            return 0;
        return follows(2) ? 1 : 2;
    }

    unsigned costOf(const Node &node) const {
        switch (node.What) {
        case Kind::Constant:
        case Kind::Phi:
            return 0;
        case Kind::Operation:
        case Kind::Permutation:
            return 1;
        case Kind::Gather:
            break;
        }
        unsigned cost = 0;
        if (all_equal(node.Scalars))
            return 1;
        if (unsigned loads = neighbours(node.Scalars))
            return loads;
        for (Value *value : node.Scalars)
            cost += Places.contains(value) ? 2 : 1;
        return cost;
    }

    bool isCheaper() {
        unsigned before = 0, after = 0;
        for (const Node &node : Nodes) {
            after += costOf(node);
            if (node.What == Kind::Operation)
                before += Lanes;
        }
        for (auto [value, place] : Places) {
            if (Nodes[place.Node].What != Kind::Phi && hasScalarUser(*value, true))
                ++after;
        }
        return after * 3 <= before * 2;
    }

    bool hasScalarUser(const Value &value, bool inBlock) const {
        return any_of(value.users(), [&](const User *user) {
            return !Places.contains(user) && (!inBlock || cast<Instruction>(user)->getParent() == &Block);
        });
    }

    Value *loadNeighbours(const Tuple &tuple, unsigned loads, IRBuilder<> &builder) {
        unsigned width = Lanes / loads;
        SmallVector<Value *, 2> parts;
        for (unsigned part = 0; part < loads; ++part) {
            auto *first = cast<LoadInst>(tuple[part * width]);
            auto *load = builder.CreateAlignedLoad(FixedVectorType::get(Word, width), first->getPointerOperand(),
                                                   first->getAlign());
            AAMDNodes tags = first->getAAMetadata();
            for (unsigned lane = 1; lane < width; ++lane)
                tags = tags.merge(cast<LoadInst>(tuple[part * width + lane])->getAAMetadata());
            load->setAAMetadata(tags);
            parts.push_back(load);
        }
        return loads == 1 ? parts[0] : builder.CreateShuffleVector(parts[0], parts[1], ArrayRef<int>{0, 1, 2, 3});
    }

    Value *gathered(const Tuple &tuple, IRBuilder<> &builder) {
        Value *vector = PoisonValue::get(Vector);
        for (auto [lane, value] : enumerate(tuple))
            vector = builder.CreateInsertElement(vector, value, uint64_t(lane));
        return vector;
    }

    void emit() {
        // Behind the instruction with that number; phis stay first.
        SmallVector<Instruction *, 0> numbered;
        for (Instruction &instruction : Block)
            numbered.push_back(&instruction);
        auto pointAfter = [&](unsigned number) {
            Instruction *at = numbered[number];
            return isa<PHINode>(at) ? Block.getFirstInsertionPt() : std::next(at->getIterator());
        };
        // An instruction may be followed by new ones already: those come first.
        DenseMap<unsigned, Instruction *> points;
        for (const Node &node : Nodes) {
            unsigned number = node.After;
            if (!points.contains(number))
                points[number] = &*pointAfter(number);
        }
        BasicBlock *entry = nullptr;
        for (Node &node : Nodes) {
            IRBuilder<> builder(points.lookup(node.After));
            builder.SetCurrentDebugLocation(DebugLoc());
            if (auto *instruction = dyn_cast<Instruction>(node.Scalars[0]))
                builder.SetCurrentDebugLocation(instruction->getDebugLoc());
            switch (node.What) {
            case Kind::Constant: {
                SmallVector<Constant *, Lanes> constants;
                for (Value *value : node.Scalars)
                    constants.push_back(cast<Constant>(value));
                node.Vector = ConstantVector::get(constants);
                break;
            }
            case Kind::Phi: {
                builder.SetInsertPoint(&Block, Block.begin());
                auto *phi = builder.CreatePHI(Vector, 2);
                auto *first = cast<PHINode>(node.Scalars[0]);
                entry = first->getIncomingBlock(first->getIncomingBlock(0) == &Block ? 1 : 0);
                Tuple start;
                for (unsigned lane = 0; lane < Lanes; ++lane)
                    start[lane] = cast<PHINode>(node.Scalars[lane])->getIncomingValueForBlock(entry);
                IRBuilder<> before(entry->getTerminator());
                phi->addIncoming(gathered(start, before), entry);
                node.Vector = phi;
                break;
            }
            case Kind::Permutation:
                node.Vector = builder.CreateShuffleVector(Nodes[node.First].Vector, ArrayRef<int>(node.Order));
                break;
            case Kind::Gather:
                if (all_equal(node.Scalars) && !Places.contains(node.Scalars[0]))
                    node.Vector = builder.CreateVectorSplat(Lanes, node.Scalars[0]);
                else if (unsigned loads = neighbours(node.Scalars))
                    node.Vector = loadNeighbours(node.Scalars, loads, builder);
                else
                    node.Vector = gathered(node.Scalars, builder);
                break;
            case Kind::Operation: {
                const APInt *distance;
                Value *first = Nodes[node.First].Vector;
                if (rotated(node.Scalars[0], distance))
                    node.Vector = builder.CreateIntrinsic(
                        Intrinsic::fshl, {Vector}, {first, first, ConstantInt::get(Vector, *distance)});
                else
                    node.Vector = builder.CreateBinOp(cast<BinaryOperator>(node.Scalars[0])->getOpcode(), first,
                                                      Nodes[node.Second].Vector);
                break;
            }
            }
        }
        for (unsigned phi : Phis)
            cast<PHINode>(Nodes[phi].Vector)->addIncoming(Nodes[Nodes[phi].Second].Vector, &Block);
        replaceScalars();
    }

    // Users that stay scalar take lanes out; what has become a vector goes.
    void replaceScalars() {
        SmallVector<Instruction *, 0> dead;
        for (const Node &node : Nodes) {
            for (auto [lane, value] : enumerate(node.Scalars)) {
                auto place = Places.find(value);
                if (place == Places.end() || &Nodes[place->second.Node] != &node)
                    continue;
                auto *scalar = cast<Instruction>(value);
                if (hasScalarUser(*scalar, false)) {
                    auto *vector = dyn_cast<Instruction>(node.Vector);
                    bool first = !vector || isa<PHINode>(vector);
                    IRBuilder<> builder(&Block, first ? Block.getFirstInsertionPt() : std::next(vector->getIterator()));
                    Value *element = builder.CreateExtractElement(node.Vector, uint64_t(lane));
                    scalar->replaceUsesWithIf(element, [&](Use &use) { return !Places.contains(use.getUser()); });
                }
                dead.push_back(scalar);
            }
        }
        for (Instruction *scalar : dead) {
            scalar->replaceAllUsesWith(PoisonValue::get(scalar->getType()));
            scalar->eraseFromParent();
        }
    }

    BasicBlock &Block;
    Type *Word;
    FixedVectorType *Vector;
    const DataLayout &Layout;
    DenseMap<const Value *, unsigned> Number, Depth;
    SmallVector<unsigned, 16> Effects; // the numbers of what a load must not pass
    SmallVector<SmallVector<Instruction *, Lanes>, 8> Rotations; // by depth, then by lane
    SmallVector<Node, 0> Nodes;
    MapVector<const Value *, Place> Places;
    SmallVector<unsigned, 8> Phis;
};

} // namespace

PreservedAnalyses RotationPass::run(Function &function, FunctionAnalysisManager &analyses) {
    if (function.hasFnAttribute(TierAttribute) || function.hasOptSize())
        return PreservedAnalyses::all();
    const auto &costs = analyses.getResult<TargetIRAnalysis>(function);
    TypeSize width = costs.getRegisterBitWidth(TargetTransformInfo::RGK_FixedWidthVector);
    bool changed = false;
    for (BasicBlock &block : function) {
        unsigned rotations = 0;
        if (block.size() <= MaxBlock)
            rotations = count_if(block, [](Instruction &instruction) { return isRotation(&instruction); });
        if (rotations < Lanes * MinDepths)
            continue;
        for (unsigned bits : {32, 64}) {
            if (Lanes * bits <= width.getFixedValue())
                changed |= BlockVectors(block, IntegerType::get(function.getContext(), bits)).run();
        }
    }
    if (!changed)
        return PreservedAnalyses::all();
    PreservedAnalyses preserved;
    preserved.preserveSet<CFGAnalyses>();
    return preserved;
}

} // namespace mote
