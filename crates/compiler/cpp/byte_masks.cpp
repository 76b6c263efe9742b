// One bit for each byte of a row: vector code's "compare bytes, gather their signs", spelled with words.
//
// Code that has no vectors compares the bytes of a word x with zero by
//
//     c = (((x | 0x80808080) - 0x01010101) | x) & 0x80808080        0x80 in each byte of x that is not zero
//
// and gathers the four bits with a multiplication, (c * 0x00204081) >> 28: bit 7 + 8i of c arrives at 28 + i from the factor's bit
// 7 * (3 - i), and as the sums 7 + 8i + 7k are all different there are no carries. zstd looks its rows of tags up this way, 16 to 64
// bytes at a time, with x = word ^ tag in each byte. Words that follow each other and whose bits do, too, become one
// vector comparison: a vector unit does it in three instructions, where the words take nine each.
#include "passes.h"

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/PatternMatch.h"
#include "llvm/Transforms/Utils/Local.h"

using namespace llvm;
using namespace llvm::PatternMatch;

namespace mote {
namespace {

constexpr unsigned WordBytes = 4;
constexpr uint64_t Tops = 0x80808080, Ones = 0x01010101, Gather = 0x00204081;
// Bits of the result, that is bytes of a row.
constexpr unsigned MaxBytes = 64;
// Depth of the expression that joins the words' bits.
constexpr unsigned MaxDepth = 4 * MaxBytes / WordBytes;

// A word's four bits, at `Position` of the whole; the word is *Load ^ Pattern.
struct Word {
    LoadInst *Load;
    Value *Pattern;
    unsigned Position;
    int64_t Offset;
};

bool isLessOnes(Value *sum, Value *word) {
    return match(sum, m_Add(m_Or(m_Specific(word), m_SpecificInt(Tops)), m_SpecificInt(uint32_t(-Ones))));
}

// `value` is the product whose top four bits say which bytes of `word` are not zero.
bool isGathered(Value *value, Value *&word) {
    Value *tops, *sum;
    return match(value, m_Mul(m_And(m_Value(tops), m_SpecificInt(Tops)), m_SpecificInt(Gather))) &&
           value->getType()->isIntegerTy(32) &&
           ((match(tops, m_Or(m_Value(sum), m_Value(word))) && isLessOnes(sum, word)) ||
            (match(tops, m_Or(m_Value(word), m_Value(sum))) && isLessOnes(sum, word)));
}

class Row {
public:
    explicit Row(Instruction &root) : Root(root) {}

    // Replaces it; `parts` are the sums within that are done with.
    bool replace(SmallPtrSetImpl<Instruction *> &parts) {
        if (!collect(&Root, 0, MaxDepth) || Words.size() < 2 || !isPowerOf2_64(Words.size()))
            return false;
        llvm::sort(Words, [](const Word &a, const Word &b) { return a.Position < b.Position; });
        if (!areAdjacent())
            return false;
        Instruction *last = lastLoad();
        if (!last)
            return false;
        unsigned bytes = Words.size() * WordBytes;
        IRBuilder<> builder(last);
        builder.SetCurrentDebugLocation(Words[0].Load->getDebugLoc());
        auto *vector = FixedVectorType::get(builder.getInt8Ty(), bytes);
        LoadInst *row = builder.CreateAlignedLoad(vector, Words[0].Load->getPointerOperand(), Align(1));
        row->setMetadata(LLVMContext::MD_tbaa, Words[0].Load->getMetadata(LLVMContext::MD_tbaa));
        // Nobody has to prove again that all of its bytes are needed.
        row->setVolatile(true);
        Value *pattern = Constant::getNullValue(vector);
        builder.SetInsertPoint(&Root);
        if (Words[0].Pattern) {
            pattern = builder.CreateVectorSplat(Words.size(), Words[0].Pattern);
            pattern = builder.CreateBitCast(pattern, vector);
        }
        for (Instruction *part : Parts)
            parts.insert(part);
        Value *bits = builder.CreateBitCast(builder.CreateICmpNE(row, pattern), builder.getIntNTy(bytes));
        Value *whole = builder.CreateZExt(bits, Root.getType());
        Root.replaceAllUsesWith(builder.CreateShl(whole, Words[0].Position));
        return true;
    }

private:
    // The words whose bits `value` consists of; false when there is anything else in it.
    bool collect(Value *value, unsigned position, unsigned depth) {
        if (depth == 0 || Words.size() >= MaxBytes / WordBytes)
            return false;
        unsigned width = value->getType()->getScalarSizeInBits();
        Value *left, *right, *inner;
        const APInt *shift, *mask;
        if (match(value, m_Or(m_Value(left), m_Value(right)))) {
            if (auto *part = dyn_cast<Instruction>(value))
                Parts.push_back(part);
            return collect(left, position, depth - 1) && collect(right, position, depth - 1);
        }
        if (match(value, m_ZExt(m_Value(inner))))
            return inner->getType()->isIntegerTy(32) && collect(inner, position, depth - 1);
        if (match(value, m_Shl(m_Value(inner), m_APInt(shift))))
            return shift->ult(width) && collectShifted(inner, unsigned(shift->getZExtValue()), width, position, depth);
        // (left << 4) | (right >> 28)
        if (match(value, m_Intrinsic<Intrinsic::fshl>(m_Value(left), m_Value(right), m_SpecificInt(WordBytes))) &&
            value->getType()->isIntegerTy(32)) {
            if (auto *part = dyn_cast<Instruction>(value))
                Parts.push_back(part);
            return collectShifted(left, WordBytes, width, position, depth) && addWord(right, position);
        }
        if (!value->getType()->isIntegerTy(32))
            return false;
        if (match(value, m_LShr(m_Value(inner), m_SpecificInt(28))))
            return addWord(inner, position);
        if (match(value, m_And(m_LShr(m_Value(inner), m_APInt(shift)), m_APInt(mask))) && shift->ult(28) &&
            *mask == APInt(32, 0xf0000000).lshr(*shift))
            return addWord(inner, position + 28 - unsigned(shift->getZExtValue()));
        if (match(value, m_And(m_Value(inner), m_SpecificInt(0xf0000000))))
            return addWord(inner, position + 28);
        return false;
    }

    bool collectShifted(Value *inner, unsigned shift, unsigned width, unsigned position, unsigned depth) {
        size_t first = Words.size();
        if (!collect(inner, 0, depth - 1))
            return false;
        for (Word &word : drop_begin(Words, first)) {
            word.Position += shift;
            // Bits that are shifted out are not part of the value.
            if (word.Position + WordBytes > width)
                return false;
            word.Position += position;
        }
        return true;
    }

    bool addWord(Value *product, unsigned position) {
        Value *word, *left, *right;
        if (!isGathered(product, word))
            return false;
        if (auto *load = dyn_cast<LoadInst>(word))
            return addLoad(load, nullptr, position);
        if (!match(word, m_Xor(m_Value(left), m_Value(right))))
            return false;
        // Either may be the word in memory.
        for (auto [loaded, pattern] : {std::pair(left, right), std::pair(right, left)}) {
            auto *load = dyn_cast<LoadInst>(loaded);
            if (load && (Words.empty() || Words[0].Pattern == pattern) && load->hasOneUse())
                return addLoad(load, pattern, position);
        }
        return false;
    }

    bool addLoad(LoadInst *load, Value *pattern, unsigned position) {
        if (!load->isSimple() || load->getParent() != Root.getParent() ||
            (!Words.empty() && Words[0].Pattern != pattern))
            return false;
        Words.push_back({load, pattern, position, 0});
        return true;
    }

    // Whether the words lie one after the other, as their bits do.
    bool areAdjacent() {
        const DataLayout &layout = Root.getModule()->getDataLayout();
        Value *base = nullptr;
        for (Word &word : Words) {
            Value *pointer = word.Load->getPointerOperand();
            APInt offset(layout.getIndexTypeSizeInBits(pointer->getType()), 0);
            Value *from = pointer->stripAndAccumulateConstantOffsets(layout, offset, /*AllowNonInbounds=*/true);
            if (base && from != base)
                return false;
            base = from;
            word.Offset = offset.getSExtValue();
        }
        for (auto [number, word] : enumerate(Words)) {
            if (word.Position != Words[0].Position + number * WordBytes ||
                word.Offset != Words[0].Offset + int64_t(number * WordBytes))
                return false;
        }
        return true;
    }

    // The last of the loads, when all of them may as well happen there.
    Instruction *lastLoad() {
        auto [first, last] = std::pair<Instruction *, Instruction *>(Words[0].Load, Words[0].Load);
        for (Word &word : Words) {
            if (word.Load->comesBefore(first))
                first = word.Load;
            if (last->comesBefore(word.Load))
                last = word.Load;
        }
        for (Instruction *at = first; at != last; at = at->getNextNode()) {
            if (at->mayWriteToMemory() || !isGuaranteedToTransferExecutionToSuccessor(at))
                return nullptr;
        }
        return last;
    }

    Instruction &Root;
    SmallVector<Word, MaxBytes / WordBytes> Words;
    SmallVector<Instruction *, MaxBytes / WordBytes> Parts;
};

} // namespace

static bool mayJoin(const Instruction &instruction) {
    const auto *intrinsic = dyn_cast<IntrinsicInst>(&instruction);
    return instruction.getOpcode() == Instruction::Or || (intrinsic && intrinsic->getIntrinsicID() == Intrinsic::fshl);
}

PreservedAnalyses ByteMaskPass::run(Function &function, FunctionAnalysisManager &) {
    SmallVector<WeakTrackingVH, 8> dead;
    SmallPtrSet<Instruction *, 16> parts;
    for (BasicBlock &block : function) {
        // The whole comes after its parts.
        for (Instruction &instruction : make_early_inc_range(reverse(block))) {
            if (mayJoin(instruction) && !parts.contains(&instruction) && !instruction.use_empty() &&
                Row(instruction).replace(parts)) {
                dead.push_back(&instruction);
                ++Statistics->idioms;
            }
        }
    }
    if (dead.empty())
        return PreservedAnalyses::all();
    RecursivelyDeleteTriviallyDeadInstructionsPermissive(dead);
    PreservedAnalyses preserved;
    preserved.preserveSet<CFGAnalyses>();
    return preserved;
}

} // namespace mote
