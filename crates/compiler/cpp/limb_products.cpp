// Sums of products of 32-bit limbs, computed with vector multiplies.
//
// Multi-precision arithmetic written for machines without a 64x64 -> 128 bit multiplication (field arithmetic
// with 25.5-bit limbs, scalars with 21-bit limbs) is a set of sums h[k] = sum of f[i] * g[j] of sign-extended
// 32-bit values. LLVM's SLP vectoriser gives up on it: every sum takes its factors in another order. This
// pass puts the distinct factors of a basic block's sums into vector registers once ("tables"), and then each step is
// two permutations of a table, one multiplication of 8 lanes (vpmuldq) and one addition.
//
//   sums        add trees of i64 whose leaves are single-use multiplications of two values with more than
//               32 sign bits; other leaves ("rest") are added to the extracted lane afterwards.
//   tables      at most 32 distinct factors: two registers of 16 x i32, one two-source permutation per use.
//   lanes       the first 8 sums own one lane each; the sums that remain share a second accumulator.
//
// Integer addition wraps, so any order of it is exact; a product of two sign-extended 32-bit values is exact in 64 bits.
#include "passes.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/PatternMatch.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/Utils/Local.h"

using namespace llvm;
using namespace llvm::PatternMatch;

namespace mote {
namespace {

constexpr unsigned Lanes = 8;           // i64 lanes of a 512-bit register
constexpr unsigned TableRegister = 16;  // i32 values of a 512-bit register
constexpr unsigned MaxTable = 32;       // a two-source permutation reads two registers
constexpr unsigned MinSums = 4;
// A squaring of ten limbs has 55.
constexpr unsigned MinProducts = 40;
constexpr unsigned MaxBlock = 4000;     // instructions; bounds the pass's time

struct Product {
    Value *A;
    Value *B;
};

struct Sum {
    Instruction *Root;
    SmallVector<Product, 12> Products;
    SmallVector<Value *, 4> Rest;
};

// A table of distinct i64 values (each the sign extension of its low half) in up to two registers.
struct Table {
    SmallVector<Value *, MaxTable> Values;
    DenseMap<Value *, unsigned> Index;
    Value *Low = nullptr;
    Value *High = nullptr;

    void add(Value *V) {
        if (Index.try_emplace(V, Values.size()).second)
            Values.push_back(V);
    }
};

class BlockRewriter {
public:
    BlockRewriter(BasicBlock &BB, AssumptionCache &AC, DominatorTree &DT)
            : BB(BB), DL(BB.getModule()->getDataLayout()), AC(AC), DT(DT) {}

    bool run() {
        if (BB.size() > MaxBlock)
            return false;
        number();
        findSums();
        // A sum whose factors are not known where the first sum is needed cannot take part.
        while (Sums.size() >= MinSums) {
            if (dropUnavailable())
                continue;
            break;
        }
        unsigned Products = 0;
        for (const Sum &S : Sums)
            Products += S.Products.size();
        if (Sums.size() < MinSums || Products < MinProducts || Sums.size() > 2 * Lanes)
            return false;
        if (!makeTables())
            return false;
        rewrite();
        return true;
    }

private:
    void number() {
        unsigned At = 0;
        for (Instruction &I : BB) {
            Order[&I] = At++;
            if (I.mayWriteToMemory())
                Writes.push_back(Order[&I]);
        }
    }

    bool isLimb(Value *V) {
        return ComputeNumSignBits(V, DL, 0, &AC, nullptr, &DT) > 32;
    }

    bool isProduct(Value *V, Product &P) {
        auto *I = dyn_cast<Instruction>(V);
        if (!I || I->getParent() != &BB || !I->hasOneUse())
            return false;
        if (!match(I, m_Mul(m_Value(P.A), m_Value(P.B))))
            return false;
        // A multiplication by a constant is cheap by itself and would fill the table.
        if (isa<Constant>(P.A) || isa<Constant>(P.B))
            return false;
        return isLimb(P.A) && isLimb(P.B);
    }

    static bool isAdd(Value *V) { return match(V, m_Add(m_Value(), m_Value())); }

    // An interior addition is used once, by another addition of this block.
    bool isInterior(Instruction &I) {
        if (!isAdd(&I) || !I.hasOneUse())
            return false;
        auto *User = dyn_cast<Instruction>(*I.user_begin());
        return User && User->getParent() == &BB && isAdd(User);
    }

    void findSums() {
        for (Instruction &I : BB) {
            if (!I.getType()->isIntegerTy(64) || !isAdd(&I) || isInterior(I))
                continue;
            Sum S{&I, {}, {}};
            SmallVector<Value *, 16> Work{I.getOperand(0), I.getOperand(1)};
            while (!Work.empty()) {
                Value *V = Work.pop_back_val();
                Product P;
                auto *VI = dyn_cast<Instruction>(V);
                if (VI && VI->getParent() == &BB && isInterior(*VI)) {
                    Work.push_back(VI->getOperand(0));
                    Work.push_back(VI->getOperand(1));
                } else if (isProduct(V, P)) {
                    S.Products.push_back(P);
                } else {
                    S.Rest.push_back(V);
                }
            }
            if (S.Products.size() >= 3)
                Sums.push_back(std::move(S));
        }
    }

    Instruction *insertionPoint() { return Sums.front().Root; }

    // Whether V can be known before instruction number P: defined earlier, or pure (or a load with no write between) and made
    // of such values. Sums themselves never can.
    bool available(Value *V, unsigned P, unsigned Depth = 0) {
        auto *I = dyn_cast<Instruction>(V);
        if (!I || I->getParent() != &BB || Order.lookup(I) < P)
            return true;
        if (Depth > 8 || isa<PHINode>(I))
            return false;
        for (const Sum &S : Sums)
            if (S.Root == I)
                return false;
        if (auto *L = dyn_cast<LoadInst>(I)) {
            if (!L->isUnordered())
                return false;
            for (unsigned W : Writes)
                if (W >= P && W < Order.lookup(I))
                    return false;
        } else if (!isSafeToSpeculativelyExecute(I)) {
            return false;
        }
        return all_of(I->operands(), [&](Value *Op) { return available(Op, P, Depth + 1); });
    }

    // Removes sums with a factor that is not available at the insertion point; true when it removed one.
    bool dropUnavailable() {
        unsigned P = Order.lookup(insertionPoint());
        for (auto It = Sums.begin(); It != Sums.end(); ++It) {
            for (const Product &Pr : It->Products) {
                if (!available(Pr.A, P) || !available(Pr.B, P)) {
                    // The earliest sum sets the insertion point: when a later one is not ready by then, the smaller loss is unknown; drop
                    // the one with fewer products.
                    if (It != Sums.begin() && Sums.front().Products.size() < It->Products.size())
                        Sums.erase(Sums.begin());
                    else
                        Sums.erase(It);
                    return true;
                }
            }
        }
        return false;
    }

    // Two tables when the factors are two-coloured by the products, else one table for both sides.
    bool makeTables() {
        DenseMap<Value *, SmallVector<Value *, 8>> Edges;
        SmallVector<Value *, 64> All;
        for (Sum &S : Sums)
            for (Product &P : S.Products)
                for (auto [X, Y] : {std::pair(P.A, P.B), std::pair(P.B, P.A)}) {
                    auto &E = Edges[X];
                    if (E.empty())
                        All.push_back(X);
                    E.push_back(Y);
                }
        DenseMap<Value *, int> Colour;
        bool Bipartite = true;
        for (Value *Start : All) {
            if (Colour.count(Start))
                continue;
            Colour[Start] = 1;
            SmallVector<Value *, 32> Work{Start};
            while (!Work.empty()) {
                Value *X = Work.pop_back_val();
                int C = Colour.lookup(X);
                for (Value *Y : Edges[X]) {
                    auto [It, New] = Colour.try_emplace(Y, -C);
                    if (New)
                        Work.push_back(Y);
                    else if (It->second == C)
                        Bipartite = false;
                }
            }
        }
        Shared = !Bipartite;
        if (Bipartite)
            for (Sum &S : Sums)
                for (Product &P : S.Products)
                    if (Colour.lookup(P.A) < 0)
                        std::swap(P.A, P.B);
        for (Sum &S : Sums)
            for (Product &P : S.Products) {
                TableA.add(P.A);
                (Shared ? TableA : TableB).add(P.B);
            }
        if (TableA.Values.size() > MaxTable || TableB.Values.size() > MaxTable)
            return false;
        sortTable(TableA);
        sortTable(TableB);
        return true;
    }

    // What a table value is made from, so that values of one shape lie side by side and are made by one vector operation:
    // (operation, constant, address of the load below it).
    struct Shape {
        unsigned Opcode = 0;
        uint64_t Constant = 0;
        Value *Base = nullptr;
        int64_t Offset = 0;
        bool IsLoad = false;
    };

    static Value *narrow(Value *V) {
        Value *X;
        if (match(V, m_SExt(m_Value(X))) && X->getType()->isIntegerTy(32))
            return X;
        return nullptr;
    }

    Shape shapeOf(Value *V) {
        Shape S;
        Value *X = narrow(V);
        if (!X)
            return S;
        if (auto *BO = dyn_cast<BinaryOperator>(X))
            if (auto *C = dyn_cast<ConstantInt>(BO->getOperand(1))) {
                S.Opcode = BO->getOpcode();
                S.Constant = C->getZExtValue();
                X = BO->getOperand(0);
            }
        if (auto *L = dyn_cast<LoadInst>(X)) {
            APInt Off(64, 0);
            S.Base = L->getPointerOperand()->stripAndAccumulateConstantOffsets(DL, Off, true);
            S.Offset = Off.getSExtValue();
            S.IsLoad = true;
        }
        return S;
    }

    void sortTable(Table &T) {
        SmallVector<std::tuple<bool, unsigned, uint64_t, unsigned, int64_t, unsigned, Value *>, 32> Keys;
        DenseMap<Value *, unsigned> Bases;
        for (auto [At, V] : enumerate(T.Values)) {
            Shape S = shapeOf(V);
            unsigned Base = Bases.try_emplace(S.Base, Bases.size()).first->second;
            Keys.push_back({!S.IsLoad, S.Opcode, S.Constant, Base, S.Offset, unsigned(At), V});
        }
        sort(Keys);
        T.Index.clear();
        for (auto [At, K] : enumerate(Keys)) {
            T.Values[At] = std::get<6>(K);
            T.Index[T.Values[At]] = At;
        }
    }

    // Moves V, and what it is made of, before the insertion point.
    void hoist(Value *V, Instruction *Point) {
        auto *I = dyn_cast<Instruction>(V);
        if (!I || I->getParent() != &BB || I->comesBefore(Point))
            return;
        for (Value *Op : I->operands())
            hoist(Op, Point);
        I->moveBefore(Point);
    }

    // Loads at consecutive addresses with no write between the first and the last of them.
    Value *vectorLoad(ArrayRef<Value *> Values, IRBuilder<> &B) {
        Value *Base = nullptr;
        int64_t First = 0;
        unsigned Earliest = ~0u, Latest = 0;
        MDNode *TBAA = nullptr;
        for (auto [At, V] : enumerate(Values)) {
            auto *L = dyn_cast<LoadInst>(V);
            if (!L || !L->isSimple() || L->getParent() != &BB)
                return nullptr;
            APInt Off(64, 0);
            Value *LB = L->getPointerOperand()->stripAndAccumulateConstantOffsets(DL, Off, true);
            if (At == 0) {
                Base = LB;
                First = Off.getSExtValue();
                TBAA = L->getMetadata(LLVMContext::MD_tbaa);
            } else if (LB != Base || Off.getSExtValue() != First + int64_t(4 * At)) {
                return nullptr;
            }
            Earliest = std::min(Earliest, Order.lookup(L));
            Latest = std::max(Latest, Order.lookup(L));
        }
        unsigned Here = Order.lookup(insertionPoint());
        for (unsigned W : Writes)
            if (W > Earliest && W < std::max(Latest, Here))
                return nullptr;
        auto *Ptr = cast<LoadInst>(Values.front())->getPointerOperand();
        auto *Ty = FixedVectorType::get(B.getInt32Ty(), Values.size());
        auto *L = B.CreateAlignedLoad(Ty, Ptr, Align(1));
        if (TBAA)
            L->setMetadata(LLVMContext::MD_tbaa, TBAA);
        return L;
    }

    Value *joinHalves(Value *X, Value *Y, IRBuilder<> &B) {
        unsigned NX = cast<FixedVectorType>(X->getType())->getNumElements();
        unsigned NY = cast<FixedVectorType>(Y->getType())->getNumElements();
        unsigned N = std::max(NX, NY);
        auto Widen = [&](Value *V, unsigned Have) {
            if (Have == N)
                return V;
            SmallVector<int, 32> Mask;
            for (unsigned I = 0; I < N; I++)
                Mask.push_back(I < Have ? int(I) : -1);
            return B.CreateShuffleVector(V, Mask);
        };
        X = Widen(X, NX);
        Y = Widen(Y, NY);
        SmallVector<int, 32> Mask;
        for (unsigned I = 0; I < NX; I++)
            Mask.push_back(I);
        for (unsigned I = 0; I < NY; I++)
            Mask.push_back(N + I);
        return B.CreateShuffleVector(X, Y, Mask);
    }

    // The i32 values as one vector, by vector loads and operations where they are isomorphic.
    Value *gather(ArrayRef<Value *> Values, IRBuilder<> &B) {
        if (Values.size() == 1)
            return B.CreateInsertElement(PoisonValue::get(FixedVectorType::get(B.getInt32Ty(), 1)), Values[0], uint64_t(0));
        // Runs of one shape: loads by power-of-two pieces, operations with a constant lane by lane.
        unsigned Run = 1;
        auto *L0 = dyn_cast<LoadInst>(Values[0]);
        auto *B0 = dyn_cast<BinaryOperator>(Values[0]);
        Value *Whole = nullptr;
        if (L0) {
            while (Run < Values.size() && consecutive(Values[Run - 1], Values[Run]))
                Run++;
            unsigned Piece = 1;
            while (Piece * 2 <= Run)
                Piece *= 2;
            Run = Piece;
            if (Run >= 2)
                Whole = vectorLoad(Values.take_front(Run), B);
        } else if (B0 && isa<ConstantInt>(B0->getOperand(1))) {
            SmallVector<Value *, 16> Left{B0->getOperand(0)};
            SmallVector<Constant *, 16> Right{cast<Constant>(B0->getOperand(1))};
            while (Run < Values.size()) {
                auto *BO = dyn_cast<BinaryOperator>(Values[Run]);
                if (!BO || BO->getOpcode() != B0->getOpcode() || !isa<ConstantInt>(BO->getOperand(1)))
                    break;
                Left.push_back(BO->getOperand(0));
                Right.push_back(cast<Constant>(BO->getOperand(1)));
                Run++;
            }
            if (Run >= 2)
                Whole = B.CreateBinOp(B0->getOpcode(), gather(Left, B), ConstantVector::get(Right));
        }
        if (!Whole) {
            // One by one, as far as no vector form begins.
            Run = 1;
            auto Plain = [](Value *V) { return !isa<LoadInst>(V) && !isa<BinaryOperator>(V); };
            while (Run < Values.size() && Plain(Values[Run - 1]) && Plain(Values[Run]))
                Run++;
            Whole = PoisonValue::get(FixedVectorType::get(B.getInt32Ty(), Run));
            for (unsigned I = 0; I < Run; I++)
                Whole = B.CreateInsertElement(Whole, Values[I], uint64_t(I));
        }
        if (Run == Values.size())
            return Whole;
        return joinHalves(Whole, gather(Values.drop_front(Run), B), B);
    }

    bool consecutive(Value *X, Value *Y) {
        auto *LX = dyn_cast<LoadInst>(X);
        auto *LY = dyn_cast<LoadInst>(Y);
        if (!LX || !LY)
            return false;
        APInt OX(64, 0), OY(64, 0);
        Value *BX = LX->getPointerOperand()->stripAndAccumulateConstantOffsets(DL, OX, true);
        Value *BY = LY->getPointerOperand()->stripAndAccumulateConstantOffsets(DL, OY, true);
        return BX == BY && OY == OX + 4;
    }

    Value *asRegister(ArrayRef<Value *> Values, IRBuilder<> &B) {
        SmallVector<Value *, 16> Narrow;
        for (Value *V : Values) {
            Value *X = narrow(V);
            Narrow.push_back(X ? X : B.CreateTrunc(V, B.getInt32Ty()));
        }
        Value *V = gather(Narrow, B);
        SmallVector<int, 16> Mask;
        for (unsigned I = 0; I < TableRegister; I++)
            Mask.push_back(I < Narrow.size() ? int(I) : -1);
        if (Narrow.size() == TableRegister)
            return V;
        return B.CreateShuffleVector(V, Mask);
    }

    // V as word * multiplier (a shift is a multiplication), where word is a load: what tables of field elements are made of.
    static bool multipleOfLoad(Value *V, LoadInst *&Word, uint64_t &Multiplier) {
        Value *X = narrow(V);
        if (!X)
            return false;
        Multiplier = 1;
        const APInt *C;
        Value *Y;
        if (match(X, m_Mul(m_Value(Y), m_APInt(C)))) {
            Multiplier = C->getZExtValue();
            X = Y;
        } else if (match(X, m_Shl(m_Value(Y), m_APInt(C))) && C->ult(32)) {
            Multiplier = uint64_t(1) << C->getZExtValue();
            X = Y;
        } else if (match(X, m_Add(m_Value(Y), m_Deferred(Y)))) {
            Multiplier = 2;
            X = Y;
        }
        Word = dyn_cast<LoadInst>(X);
        return Word != nullptr;
    }

    // The common table: up to 16 consecutive words of memory, and up to 16 multiples of them (19 * g, 2 * f). The second register is then
    // one multiplication of the first one (permuted, when a word has several multiples), and nothing is gathered.
    bool deriveHigh(Table &T, IRBuilder<> &B) {
        DenseMap<int64_t, Value *> Words;
        Value *Base = nullptr;
        struct Place {
            int64_t Offset;
            uint64_t Multiplier;
        };
        SmallVector<Place, MaxTable> Places;
        for (Value *V : T.Values) {
            LoadInst *Word;
            uint64_t Multiplier;
            if (!multipleOfLoad(V, Word, Multiplier))
                return false;
            APInt Off(64, 0);
            Value *At = Word->getPointerOperand()->stripAndAccumulateConstantOffsets(DL, Off, true);
            if (Base && At != Base)
                return false;
            Base = At;
            Words[Off.getSExtValue()] = Word;
            Places.push_back({Off.getSExtValue(), Multiplier});
        }
        SmallVector<int64_t, 16> Offsets;
        for (auto &W : Words)
            Offsets.push_back(W.first);
        sort(Offsets);
        if (Offsets.size() < 2 || Offsets.size() > TableRegister)
            return false;
        SmallVector<Value *, 16> Loads;
        for (auto [At, Off] : enumerate(Offsets)) {
            if (Off != Offsets.front() + int64_t(4 * At))
                return false;
            Loads.push_back(Words[Off]);
        }
        // Where each multiple goes: to its word's own lane while that is free, otherwise to the first lane that is.
        SmallVector<int, 16> From(TableRegister, -1);
        SmallVector<uint64_t, 16> By(TableRegister, 1);
        SmallVector<std::pair<Value *, unsigned>, MaxTable> Lane;
        SmallVector<std::tuple<Value *, int, uint64_t>, 16> Late;
        bool Moved = false;
        for (auto [At, P] : enumerate(Places)) {
            int Word = int((P.Offset - Offsets.front()) / 4);
            if (P.Multiplier == 1) {
                Lane.push_back({T.Values[At], unsigned(Word)});
            } else if (From[Word] < 0) {
                From[Word] = Word;
                By[Word] = P.Multiplier;
                Lane.push_back({T.Values[At], TableRegister + Word});
            } else {
                Late.push_back({T.Values[At], Word, P.Multiplier});
            }
        }
        for (auto [V, Word, Multiplier] : Late) {
            auto *Free = llvm::find(From, -1);
            if (Free == From.end())
                return false;
            unsigned To = Free - From.begin();
            From[To] = Word;
            By[To] = Multiplier;
            Moved = true;
            Lane.push_back({V, TableRegister + To});
        }
        Value *V = gather(Loads, B);
        SmallVector<int, 16> Mask;
        for (unsigned I = 0; I < TableRegister; I++)
            Mask.push_back(I < Loads.size() ? int(I) : -1);
        T.Low = Loads.size() == TableRegister ? V : B.CreateShuffleVector(V, Mask);
        if (llvm::any_of(From, [](int F) { return F >= 0; })) {
            SmallVector<Constant *, 16> Factors;
            for (uint64_t M : By)
                Factors.push_back(B.getInt32(uint32_t(M)));
            Value *Source = Moved ? B.CreateShuffleVector(T.Low, From) : T.Low;
            T.High = B.CreateMul(Source, ConstantVector::get(Factors));
        }
        for (auto [V, At] : Lane)
            T.Index[V] = At;
        return true;
    }

    void materialise(Table &T, Instruction *Point, IRBuilder<> &B) {
        if (T.Values.empty())
            return;
        for (Value *V : T.Values)
            hoist(V, Point);
        if (deriveHigh(T, B))
            return;
        ArrayRef<Value *> All(T.Values);
        T.Low = asRegister(All.take_front(TableRegister), B);
        if (All.size() > TableRegister)
            T.High = asRegister(All.drop_front(TableRegister), B);
    }

    // Hides a constant: known indices make the code generator take a permutation apart into several cheaper-looking ones.
    static Value *opaque(Value *V, IRBuilder<> &B) {
        auto *Ty = FunctionType::get(V->getType(), {V->getType()}, false);
        return B.CreateCall(InlineAsm::get(Ty, "", "=v,0", false), {V});
    }

    // Lane i of the result (as i64) has the table's value Factors[i] in its low half.
    Value *permute(Table &T, ArrayRef<Value *> Factors, IRBuilder<> &B) {
        SmallVector<int, 16> Mask;
        for (Value *F : Factors) {
            int At = T.Index.lookup(F);
            // Both halves name the same value: a poison half would poison the lane.
            Mask.push_back(At);
            Mask.push_back(At);
        }
        SmallVector<Constant *, 16> Indices;
        for (int M : Mask)
            Indices.push_back(B.getInt32(M));
        Value *Index = opaque(ConstantVector::get(Indices), B);
        Value *V = T.High ? B.CreateIntrinsic(Intrinsic::x86_avx512_vpermi2var_d_512, {}, {T.Low, Index, T.High})
                                            : B.CreateIntrinsic(Intrinsic::x86_avx512_permvar_si_512, {}, {T.Low, Index});
        V = B.CreateBitCast(V, FixedVectorType::get(B.getInt64Ty(), Lanes));
        auto *By32 = ConstantVector::getSplat(ElementCount::getFixed(Lanes), B.getInt64(32));
        return B.CreateAShr(B.CreateShl(V, By32), By32);
    }

    // One accumulator: each of its sums owns Width adjacent lanes.
    void accumulate(ArrayRef<Sum *> Group, IRBuilder<> &B) {
        unsigned Width = 1;
        while (Width * 2 * Group.size() <= Lanes)
            Width *= 2;
        unsigned Steps = 0;
        for (Sum *S : Group)
            Steps = std::max<unsigned>(Steps, (S->Products.size() + Width - 1) / Width);
        auto *Ty = FixedVectorType::get(B.getInt64Ty(), Lanes);
        Value *Acc = nullptr;
        for (unsigned Step = 0; Step < Steps; Step++) {
            SmallVector<Value *, Lanes> As(Lanes, TableA.Values.front());
            SmallVector<Value *, Lanes> Bs(Lanes, (Shared ? TableA : TableB).Values.front());
            SmallVector<Constant *, Lanes> Used(Lanes, B.getFalse());
            bool Full = true;
            for (unsigned Lane = 0; Lane < Lanes; Lane++) {
                unsigned Which = Lane / Width;
                unsigned At = Step * Width + Lane % Width;
                if (Which < Group.size() && At < Group[Which]->Products.size()) {
                    As[Lane] = Group[Which]->Products[At].A;
                    Bs[Lane] = Group[Which]->Products[At].B;
                    Used[Lane] = B.getTrue();
                } else if (Which < Group.size()) {
                    Full = false;
                }
            }
            Value *M = B.CreateMul(permute(TableA, As, B), permute(Shared ? TableA : TableB, Bs, B));
            if (!Full)
                M = B.CreateSelect(ConstantVector::get(Used), M, Constant::getNullValue(Ty));
            Acc = Acc ? B.CreateAdd(Acc, M) : M;
        }
        for (unsigned Half = Width / 2; Half >= 1; Half /= 2) {
            SmallVector<int, Lanes> Mask;
            for (unsigned Lane = 0; Lane < Lanes; Lane++)
                Mask.push_back((Lane + Half) % Lanes);
            Acc = B.CreateAdd(Acc, B.CreateShuffleVector(Acc, Mask));
        }
        for (auto [At, S] : enumerate(Group)) {
            Value *Total = B.CreateExtractElement(Acc, uint64_t(At * Width));
            IRBuilder<> AtRoot(S->Root);
            for (Value *R : S->Rest)
                Total = AtRoot.CreateAdd(Total, R);
            Replaced.push_back({S->Root, Total});
        }
    }

    void rewrite() {
        Instruction *Point = insertionPoint();
        IRBuilder<> B(Point);
        materialise(TableA, Point, B);
        materialise(TableB, Point, B);
        SmallVector<Sum *, 16> First, Second;
        // Sums with many products go first so that the narrow accumulator takes few steps.
        SmallVector<Sum *, 16> BySize;
        for (Sum &S : Sums)
            BySize.push_back(&S);
        stable_sort(BySize, [](Sum *X, Sum *Y) { return X->Products.size() > Y->Products.size(); });
        for (auto [At, S] : enumerate(BySize))
            (At < Lanes ? First : Second).push_back(S);
        accumulate(First, B);
        if (!Second.empty())
            accumulate(Second, B);
        for (auto [Old, New] : Replaced)
            Old->replaceAllUsesWith(New);
        for (auto [Old, New] : Replaced)
            RecursivelyDeleteTriviallyDeadInstructions(Old);
    }

    BasicBlock &BB;
    const DataLayout &DL;
    AssumptionCache &AC;
    DominatorTree &DT;
    DenseMap<const Instruction *, unsigned> Order;
    SmallVector<unsigned, 32> Writes;
    SmallVector<Sum, 16> Sums;
    Table TableA, TableB;
    bool Shared = false;
    SmallVector<std::pair<Instruction *, Value *>, 16> Replaced;
};

} // namespace

PreservedAnalyses LimbProductsPass::run(Function &F, FunctionAnalysisManager &AM) {
    if (!Triple(F.getParent()->getTargetTriple()).isX86())
        return PreservedAnalyses::all();
    auto &TTI = AM.getResult<TargetIRAnalysis>(F);
    if (TTI.getRegisterBitWidth(TargetTransformInfo::RGK_FixedWidthVector).getFixedValue() < 512)
        return PreservedAnalyses::all();
    auto &AC = AM.getResult<AssumptionAnalysis>(F);
    auto &DT = AM.getResult<DominatorTreeAnalysis>(F);
    bool Changed = false;
    for (BasicBlock &BB : F)
        Changed |= BlockRewriter(BB, AC, DT).run();
    if (!Changed)
        return PreservedAnalyses::all();
    F.addFnAttr("min-legal-vector-width", "512");
    PreservedAnalyses PA;
    PA.preserveSet<CFGAnalyses>();
    return PA;
}

} // namespace mote
