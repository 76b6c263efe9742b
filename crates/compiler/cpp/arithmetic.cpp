// Multiplications that wasm code spells out, as LLVM's code generation knows them.
//
// Two shapes, recognised by their data flow wherever they stand, inlined or in a function of their own:
//   - the high half of a 64x64-bit product put together from four 32x32-bit products (`__multi3` of compiler-rt and every
//     `mulhi` in C): one multiplication of i128, which is one machine instruction;
//   - `((x << k) & (0xffffffff << k)) * y`, which is how LLVM itself writes `2^k * (u32)x * y`: with the mask next to the
//     multiplication again, vector units multiply 32-bit lanes (`vpmuludq`) instead of 64-bit ones. BLAKE2's relative in
//     Argon2 consists of it.
#include "passes.h"

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/PatternMatch.h"
#include "llvm/Transforms/Utils/Local.h"

using namespace llvm;
using namespace llvm::PatternMatch;

namespace mote {

namespace {

constexpr uint64_t Low32 = 0xffffffff;
// Terms of a sum that are looked at: a product's high half has three, `__multi3` adds two.
constexpr unsigned MaxTerms = 8;

// `value` is the low or the high half of *whole, zero-extended. A value known to have 32 bits is its own low half.
bool isLow(Value *value, Value *&whole) {
    if (match(value, m_And(m_Value(whole), m_SpecificInt(Low32))))
        return true;
    Value *narrow;
    if (match(value, m_ZExt(m_Value(narrow))) && narrow->getType()->isIntegerTy(32) &&
        match(narrow, m_Trunc(m_Value(whole))) && whole->getType()->isIntegerTy(64))
        return true;
    return false;
}

bool isHigh(Value *value, Value *&whole) { return match(value, m_LShr(m_Value(whole), m_SpecificInt(32))); }

// A product of halves: of which values, and which half of each.
struct Product {
    Value *A, *B;
    bool HighA, HighB;
};

std::optional<Product> productOf(Value *value) {
    Value *left, *right;
    if (!match(value, m_Mul(m_Value(left), m_Value(right))))
        return std::nullopt;
    Product product{};
    if (isLow(left, product.A))
        product.HighA = false;
    else if (isHigh(left, product.A))
        product.HighA = true;
    else
        return std::nullopt;
    if (isLow(right, product.B))
        product.HighB = false;
    else if (isHigh(right, product.B))
        product.HighB = true;
    else
        return std::nullopt;
    return product;
}

bool isProduct(Value *value, Value *a, bool highA, Value *b, bool highB) {
    auto product = productOf(value);
    if (!product)
        return false;
    auto is = [&](Value *x, bool highX, Value *y, bool highY) {
        return product->A == x && product->HighA == highX && product->B == y && product->HighB == highY;
    };
    return is(a, highA, b, highB) || is(b, highB, a, highA);
}

// The high half of a * b is  aH*bH + (t >> 32) + (u >> 32)  with
//   t = (aL*bL >> 32) + aH*bL    u = (t & 0xffffffff) + aL*bH
// (or a and b exchanged). No sum here overflows 64 bits.
bool isHighHalf(Value *top, Value *t, Value *u, Value *&a, Value *&b) {
    auto product = productOf(top);
    if (!product || !product->HighA || !product->HighB)
        return false;
    for (bool exchanged : {false, true}) {
        a = exchanged ? product->B : product->A;
        b = exchanged ? product->A : product->B;
        Value *bottom, *cross, *lowT, *other, *wholeT;
        bool matchesT = match(t, m_c_Add(m_LShr(m_Value(bottom), m_SpecificInt(32)), m_Value(cross))) &&
                        isProduct(bottom, a, false, b, false) && isProduct(cross, a, true, b, false);
        if (!matchesT)
            continue;
        for (bool swapped : {false, true}) {
            auto *sum = dyn_cast<BinaryOperator>(u);
            if (!sum || sum->getOpcode() != Instruction::Add)
                return false;
            lowT = sum->getOperand(swapped);
            other = sum->getOperand(!swapped);
            if (isLow(lowT, wholeT) && wholeT == t && isProduct(other, a, false, b, true))
                return true;
        }
    }
    return false;
}

// Sums up what an add tree adds; inner sums have no other use.
void collectTerms(Value *value, SmallVectorImpl<Value *> &terms, bool isRoot) {
    Value *left, *right;
    if (terms.size() <= MaxTerms && match(value, m_Add(m_Value(left), m_Value(right))) &&
        (isRoot || value->hasOneUse())) {
        collectTerms(left, terms, false);
        collectTerms(right, terms, false);
    } else {
        terms.push_back(value);
    }
}

// The same with one carry:  aH*bH + (p >> 32) + (q >> 32) + (c >> 32)  with
//   p = aL*bH    q = aH*bL    c = (aL*bL >> 32) + (p & 0xffffffff) + (q & 0xffffffff)
bool isHighHalfWithCarry(Value *top, Value *p, Value *q, Value *carry, Value *&a, Value *&b) {
    auto product = productOf(top);
    if (!product || !product->HighA || !product->HighB)
        return false;
    a = product->A;
    b = product->B;
    bool crosses = (isProduct(p, a, false, b, true) && isProduct(q, a, true, b, false)) ||
                   (isProduct(p, a, true, b, false) && isProduct(q, a, false, b, true));
    if (!crosses || p == q)
        return false;
    SmallVector<Value *, 4> parts;
    collectTerms(carry, parts, true);
    if (parts.size() != 3)
        return false;
    bool bottom = false, lowP = false, lowQ = false;
    for (Value *part : parts) {
        Value *whole;
        if (isHigh(part, whole) && isProduct(whole, a, false, b, false))
            bottom = true;
        else if (isLow(part, whole) && whole == p)
            lowP = true;
        else if (isLow(part, whole) && whole == q)
            lowQ = true;
    }
    return bottom && lowP && lowQ;
}

// The low half, written (u << 32) + (aL*bL & 0xffffffff), is that of a * b.
void replaceLowHalf(Value *u, Value *a, Value *b) {
    for (User *user : u->users()) {
        if (!match(user, m_Shl(m_Specific(u), m_SpecificInt(32))))
            continue;
        for (User *last : make_early_inc_range(user->users())) {
            auto *low = dyn_cast<Instruction>(last);
            Value *other, *whole;
            bool joins = low && (match(low, m_c_Or(m_Specific(user), m_Value(other))) ||
                                 match(low, m_c_Add(m_Specific(user), m_Value(other))));
            if (joins && isLow(other, whole) && isProduct(whole, a, false, b, false)) {
                IRBuilder<> builder(low);
                low->replaceAllUsesWith(builder.CreateMul(a, b));
            }
        }
    }
}

// `root` without the given terms, and with the high half of a * b.
void replaceTerms(Instruction &root, ArrayRef<Value *> terms, ArrayRef<size_t> replaced, Value *a, Value *b) {
    IRBuilder<> builder(&root);
    Type *wide = builder.getInt128Ty();
    Value *product = builder.CreateNUWMul(builder.CreateZExt(a, wide), builder.CreateZExt(b, wide));
    Value *sum = builder.CreateTrunc(builder.CreateLShr(product, 64), root.getType());
    for (auto [number, term] : enumerate(terms)) {
        if (!is_contained(replaced, number))
            sum = builder.CreateAdd(sum, term);
    }
    root.replaceAllUsesWith(sum);
}

bool replaceHighHalf(Instruction &root) {
    if (root.getOpcode() != Instruction::Add || !root.getType()->isIntegerTy(64))
        return false;
    // Only the outermost sum.
    if (root.hasOneUse() && match(root.user_back(), m_Add(m_Value(), m_Value())))
        return false;
    SmallVector<Value *, MaxTerms> terms;
    collectTerms(&root, terms, true);
    if (terms.size() < 3 || terms.size() > MaxTerms)
        return false;
    auto areDistinct = [&](ArrayRef<size_t> numbers) {
        return all_of(enumerate(numbers), [&](auto entry) {
            return !is_contained(numbers.take_front(entry.index()), entry.value());
        });
    };
    for (size_t top = 0; top < terms.size(); ++top) {
        for (size_t i = 0; i < terms.size(); ++i) {
            for (size_t j = 0; j < terms.size(); ++j) {
                Value *t, *u, *a, *b, *carry;
                if (!areDistinct({top, i, j}) || !isHigh(terms[i], t) || !isHigh(terms[j], u))
                    continue;
                if (isHighHalf(terms[top], t, u, a, b)) {
                    replaceLowHalf(u, a, b);
                    replaceTerms(root, terms, {top, i, j}, a, b);
                    return true;
                }
                for (size_t k = 0; k < terms.size(); ++k) {
                    if (areDistinct({top, i, j, k}) && isHigh(terms[k], carry) &&
                        isHighHalfWithCarry(terms[top], t, u, carry, a, b)) {
                        replaceTerms(root, terms, {top, i, j, k}, a, b);
                        return true;
                    }
                }
            }
        }
    }
    return false;
}

bool exposeMask(Instruction &multiplication) {
    if (multiplication.getOpcode() != Instruction::Mul || !multiplication.getType()->isIntOrIntVectorTy(64))
        return false;
    for (unsigned side : {0u, 1u}) {
        Value *masked = multiplication.getOperand(side), *whole;
        const APInt *shift, *mask;
        if (!masked->hasOneUse() ||
            !match(masked, m_And(m_Shl(m_Value(whole), m_APInt(shift)), m_APInt(mask))) || shift->uge(32) ||
            *mask != APInt(64, Low32) << *shift)
            continue;
        // Products wrap, so the shift may as well come last.
        IRBuilder<> builder(&multiplication);
        Type *type = multiplication.getType();
        Value *low = builder.CreateAnd(whole, ConstantInt::get(type, Low32));
        Value *product = builder.CreateMul(low, multiplication.getOperand(!side));
        multiplication.replaceAllUsesWith(builder.CreateShl(product, ConstantInt::get(type, *shift)));
        return true;
    }
    return false;
}

} // namespace

PreservedAnalyses ArithmeticPass::run(Function &function, FunctionAnalysisManager &) {
    SmallVector<WeakTrackingVH, 8> dead;
    for (BasicBlock &block : function) {
        for (Instruction &instruction : make_early_inc_range(block)) {
            if (replaceHighHalf(instruction) || exposeMask(instruction)) {
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
