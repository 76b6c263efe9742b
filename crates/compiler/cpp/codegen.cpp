// Targets, pass pipelines and object files.
#include "passes.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/CodeGen/MachineModuleInfo.h"
#include "llvm/CodeGen/Passes.h"
#include "llvm/CodeGen/StackProtector.h"
#include "llvm/CodeGen/TargetPassConfig.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/StandardInstrumentations.h"
#include "llvm/Support/CBindingWrapping.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/Transforms/Scalar/LoopIdiomRecognize.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/SROA.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

using namespace llvm;

struct MoteTarget {
    std::string Triple, Cpu, Features, EnabledFeatures, DataLayout;
    const Target *Backend;
};

namespace {

char *copyOf(const std::string &text) {
    auto *copy = static_cast<char *>(malloc(text.size() + 1));
    if (copy)
        memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
}

int fail(char **error, const std::string &text) {
    *error = copyOf(text);
    return 1;
}

// Options that LLVM has only as process-wide switches.
void initialize() {
    static std::once_flag once;
    std::call_once(once, [] {
        LLVMInitializeX86TargetInfo();
        LLVMInitializeX86Target();
        LLVMInitializeX86TargetMC();
        LLVMInitializeX86AsmPrinter();
        LLVMInitializeX86AsmParser();
        LLVMInitializeAArch64TargetInfo();
        LLVMInitializeAArch64Target();
        LLVMInitializeAArch64TargetMC();
        LLVMInitializeAArch64AsmPrinter();
        LLVMInitializeAArch64AsmParser();
        const char *options[] = {
            "mote-compile",
            // A conditional move from memory would become a branch around the load: the trap would be lost when the
            // branch is taken, and code that its author kept free of branches would get one.
            "-x86-cmov-converter-force-mem-operand=false",
            // SLP takes a gain of a few units for one that is not: BLAKE2b's rounds became broadcasts and blends (kdf
            // 1.69 x native at 0, 1.27 at 10, 1.25 at 30 or without SLP; curve25519 gains up to 0).
            "-slp-threshold=10",
            // Looks for values to keep in AVX-512's mask registers: a tenth of code generation, quadratic in the number of blocks, and no
            // change in the artifact of box_seal.
            "-disable-x86-domain-reassignment",
        };
        cl::ParseCommandLineOptions(std::size(options), options, "", &nulls());
    });
}

std::unique_ptr<TargetMachine> machineFor(const MoteTarget &target, int optLevel) {
    TargetOptions options;
    options.AllowFPOpFusion = FPOpFusion::Strict;
    auto level = optLevel == 0   ? CodeGenOptLevel::None
                 : optLevel == 1 ? CodeGenOptLevel::Less
                                     : CodeGenOptLevel::Aggressive;
    return std::unique_ptr<TargetMachine>(target.Backend->createTargetMachine(
        target.Triple, target.Cpu, target.Features, options, Reloc::PIC_, CodeModel::Small, level));
}

// No function of a C library exists in an artifact but these three.
TargetLibraryInfoImpl libraryFor(const MoteTarget &target) {
    TargetLibraryInfoImpl library{Triple(target.Triple)};
    library.disableAllFunctions();
    for (LibFunc function : {LibFunc_memcpy, LibFunc_memmove, LibFunc_memset})
        library.setAvailable(function);
    return library;
}

// Passes whose cost grows faster than the function, for functions marked as huge.
bool isExpensive(StringRef pass) {
    static constexpr StringLiteral names[] = {
        "GVNPass",           "JumpThreadingPass",     "CorrelatedValuePropagationPass",
        "SLPVectorizerPass", "LoopVectorizePass",     "SimpleLoopUnswitchPass",
        "LICMPass",          "DSEPass",               "ConstraintEliminationPass",
        "LoopUnrollPass",    "LoopFullUnrollPass",    "MemCpyOptPass",
        "BDCEPass",          "MergedLoadStoreMotionPass", "IndVarSimplifyPass",
        "LoopLoadEliminationPass", "VectorCombinePass", "ReassociatePass",
    };
    return is_contained(names, pass);
}

bool isHuge(const Function &function) {
    return function.hasFnAttribute(mote::TierAttribute);
}

// Its locals stay in stack slots: promoting them would make more phis than there is memory for.
bool keepsSlots(const Function &function) {
    return function.getFnAttribute(mote::TierAttribute).getValueAsString() == "slots";
}

bool skipsPass(StringRef pass, Any unit) {
    if (pass == "SROAPass" || pass == "SimplifyCFGPass") {
        const auto *function = any_cast<const Function *>(&unit);
        return function && keepsSlots(**function);
    }
    if (!isExpensive(pass))
        return false;
    if (const auto *function = any_cast<const Function *>(&unit))
        return isHuge(**function);
    if (const auto *loop = any_cast<const Loop *>(&unit))
        return isHuge(*(*loop)->getHeader()->getParent());
    return false;
}

void addMotePasses(FunctionPassManager &passes, MoteStatistics *statistics, int level) {
    if (level == 3)
        passes.addPass(mote::FramePass(statistics));
    passes.addPass(mote::WitnessPass(statistics));
    if (level < 3)
        return;
    passes.addPass(mote::ArithmeticPass(statistics));
    passes.addPass(mote::ByteMaskPass(statistics));
    passes.addPass(mote::LimbProductsPass());
    passes.addPass(mote::RotationPass());
    passes.addPass(mote::CopyPass(statistics));
    passes.addPass(mote::AddressPass(statistics));
    passes.addPass(createFunctionToLoopPassAdaptor(LoopIdiomRecognizePass()));
}

// Selection looks at one block at a time, and some of its questions are about all pairs of a block's stores: 30,000 stores in one block
// took 17 s and 1 GB, and 11 s and 260 MB in pieces. No block of box_seal is as long.
constexpr size_t MaxBlockInstructions = 4000;

class BlockCutter : public FunctionPass {
public:
    static char ID;
    BlockCutter() : FunctionPass(ID) {}
    StringRef getPassName() const override { return "Cut long blocks"; }
    void getAnalysisUsage(AnalysisUsage &usage) const override { usage.setPreservesAll(); }

    bool runOnFunction(Function &function) override {
        auto *dominators = getAnalysisIfAvailable<DominatorTreeWrapperPass>();
        auto *loops = getAnalysisIfAvailable<LoopInfoWrapperPass>();
        bool isCut = false;
        for (auto block = function.begin(); block != function.end(); ++block) {
            size_t room = MaxBlockInstructions;
            for (Instruction &instruction : *block) {
                if (room > 0) {
                    --room;
                } else if (mayStartBlock(instruction)) {
                    // The new block is the next that the outer loop sees.
                    SplitBlock(&*block, &instruction, dominators ? &dominators->getDomTree() : nullptr,
                               loops ? &loops->getLoopInfo() : nullptr);
                    isCut = true;
                    break;
                }
            }
        }
        return isCut;
    }

private:
    // A musttail call, what follows it and a landing pad's first instructions stay where they are.
    static bool mayStartBlock(const Instruction &instruction) {
        if (instruction.isTerminator() || isa<PHINode>(instruction) || instruction.isEHPad() || isa<AllocaInst>(instruction))
            return false;
        const auto *before = dyn_cast_or_null<CallInst>(instruction.getPrevNode());
        return !before || !before->isMustTailCall();
    }
};
char BlockCutter::ID = 0;

// What LLVMTargetMachine::addPassesToEmitFile does, without the pass that follows variables through registers: the debug information
// has lines and no variables, and the pass takes 7% of all time to find out.
bool addCodeGeneration(LLVMTargetMachine &machine, legacy::PassManager &passes, raw_pwrite_stream &stream) {
    auto *modules = new MachineModuleInfoWrapperPass(&machine);
    TargetPassConfig *config = machine.createPassConfig(passes);
    config->disablePass(&LiveDebugValuesID);
    // The last pass before selection.
    config->insertPass(&StackProtector::ID, new BlockCutter());
    passes.add(config);
    passes.add(modules);
    if (config->addISelPasses())
        return false;
    config->addMachinePasses();
    config->setInitialized();
    if (machine.addAsmPrinter(passes, stream, nullptr, CodeGenFileType::ObjectFile, modules->getMMI().getContext()))
        return false;
    passes.add(createFreeMachineFunctionPass());
    return true;
}

struct Pipeline {
    LoopAnalysisManager Loops;
    FunctionAnalysisManager Functions;
    CGSCCAnalysisManager Components;
    ModuleAnalysisManager Modules;
    ModulePassManager Passes;
};

} // namespace

extern "C" {

MoteTarget *mote_target_create(const char *cpu, char **error) {
    initialize();
    auto target = std::make_unique<MoteTarget>();
    target->Triple = sys::getDefaultTargetTriple();
    std::string reason;
    target->Backend = TargetRegistry::lookupTarget(target->Triple, reason);
    if (!target->Backend) {
        *error = copyOf(reason);
        return nullptr;
    }
    if (cpu) {
        target->Cpu = cpu;
    } else {
        target->Cpu = sys::getHostCPUName().str();
        SmallVector<std::string> features;
        for (const auto &feature : sys::getHostCPUFeatures())
            features.push_back((feature.second ? "+" : "-") + feature.first().str());
        sort(features);
        target->Features = join(features, ",");
    }
    // AMD's SSE4a has nothing for code that may use AVX, and a leaf of CPUID to itself: asking for it is 4 us of every start in a virtual
    // machine.
    if (StringRef(target->Triple).starts_with("x86_64"))
        target->Features += target->Features.empty() ? "-sse4a" : ",-sse4a";
    std::unique_ptr<MCSubtargetInfo> known(target->Backend->createMCSubtargetInfo(target->Triple, "", ""));
    if (!known || !known->isCPUStringValid(target->Cpu)) {
        *error = copyOf("no CPU named `" + target->Cpu + "` for " + target->Triple);
        return nullptr;
    }
    std::unique_ptr<MCSubtargetInfo> subtarget(
        target->Backend->createMCSubtargetInfo(target->Triple, target->Cpu, target->Features));
    // What sys::getHostCPUFeatures can name is the instruction set; the rest is tuning.
    auto host = sys::getHostCPUFeatures();
    SmallVector<std::string> enabled;
    for (const SubtargetFeatureKV &feature : subtarget->getEnabledProcessorFeatures()) {
        if (host.contains(feature.Key))
            enabled.push_back(feature.Key);
    }
    sort(enabled);
    target->EnabledFeatures = join(enabled, ",");
    auto machine = machineFor(*target, 1);
    if (!machine) {
        *error = copyOf("LLVM cannot generate code for " + target->Triple);
        return nullptr;
    }
    target->DataLayout = machine->createDataLayout().getStringRepresentation();
    return target.release();
}

void mote_target_dispose(MoteTarget *target) { delete target; }
const char *mote_target_cpu(const MoteTarget *target) { return target->Cpu.c_str(); }
const char *mote_target_features(const MoteTarget *target) { return target->Features.c_str(); }
const char *mote_target_enabled_features(const MoteTarget *target) { return target->EnabledFeatures.c_str(); }
const char *mote_target_triple(const MoteTarget *target) { return target->Triple.c_str(); }
const char *mote_target_data_layout(const MoteTarget *target) { return target->DataLayout.c_str(); }

int mote_optimize(LLVMModuleRef wrapped, const MoteTarget *target, int level, const char *passes,
                  MoteStatistics *statistics, char **error) {
    Module &module = *unwrap(wrapped);
    auto machine = machineFor(*target, level);
    if (!machine)
        return fail(error, "LLVM cannot generate code for " + target->Triple);
    module.setTargetTriple(target->Triple);
    module.setDataLayout(machine->createDataLayout());
    std::string broken;
    raw_string_ostream stream(broken);
    if (verifyModule(module, &stream))
        return fail(error, "invalid LLVM module: " + broken);

    PipelineTuningOptions tuning;
    tuning.LoopInterleaving = level == 3;
    tuning.LoopVectorization = level == 3;
    tuning.SLPVectorization = level == 3;
    PassInstrumentationCallbacks callbacks;
    callbacks.registerShouldRunOptionalPassCallback([](StringRef pass, Any unit) { return !skipsPass(pass, unit); });
    Pipeline pipeline;
    PassBuilder builder(machine.get(), tuning, std::nullopt, &callbacks);
    TargetLibraryInfoImpl library = libraryFor(*target);
    pipeline.Functions.registerPass([&] { return TargetLibraryAnalysis(library); });
    builder.registerModuleAnalyses(pipeline.Modules);
    builder.registerCGSCCAnalyses(pipeline.Components);
    builder.registerFunctionAnalyses(pipeline.Functions);
    builder.registerLoopAnalyses(pipeline.Loops);
    builder.crossRegisterProxies(pipeline.Loops, pipeline.Functions, pipeline.Components, pipeline.Modules);
    builder.registerVectorizerStartEPCallback([&](FunctionPassManager &functions, OptimizationLevel) {
        addMotePasses(functions, statistics, level);
    });
    builder.registerPeepholeEPCallback([&](FunctionPassManager &functions, OptimizationLevel) {
        functions.addPass(mote::OffsetPass());
    });
    builder.registerLateLoopOptimizationsEPCallback([&](LoopPassManager &loops, OptimizationLevel) {
        if (level == 3)
            loops.addPass(mote::SlotLoopPass());
    });
    builder.registerPipelineParsingCallback(
        [&](StringRef name, ModulePassManager &modules, ArrayRef<PassBuilder::PipelineElement>) {
            if (name != "mote-prepare")
                return false;
            modules.addPass(mote::PreparePass(statistics));
            return true;
        });
    builder.registerPipelineParsingCallback(
        [&](StringRef name, FunctionPassManager &functions, ArrayRef<PassBuilder::PipelineElement>) {
            if (name == "mote-witness")
                functions.addPass(mote::WitnessPass(statistics));
            else if (name == "mote-limb-products")
                functions.addPass(mote::LimbProductsPass());
            else if (name == "mote-rotations")
                functions.addPass(mote::RotationPass());
            else if (name == "mote-copies")
                functions.addPass(mote::CopyPass(statistics));
            else if (name == "mote-offsets")
                functions.addPass(mote::OffsetPass());
            else if (name == "mote-frames")
                functions.addPass(mote::FramePass(statistics));
            else if (name == "mote-arithmetic")
                functions.addPass(mote::ArithmeticPass(statistics));
            else if (name == "mote-byte-masks")
                functions.addPass(mote::ByteMaskPass(statistics));
            else if (name == "mote-addresses")
                functions.addPass(mote::AddressPass(statistics));
            else
                return false;
            return true;
        });

    if (passes) {
        if (Error problem = builder.parsePassPipeline(pipeline.Passes, passes))
            return fail(error, toString(std::move(problem)));
    } else {
        pipeline.Passes.addPass(mote::PreparePass(statistics));
        if (level == 0) {
            // Not LLVM's O0, whose code is several times larger for every local of the source.
            FunctionPassManager functions;
            functions.addPass(SROAPass(SROAOptions::PreserveCFG));
            functions.addPass(SimplifyCFGPass());
            functions.addPass(mote::WitnessPass(statistics, true));
            pipeline.Passes.addPass(createModuleToFunctionPassAdaptor(std::move(functions)));
        } else if (level == 1) {
            // A fifth of the time of LLVM's O1, which measures and simplifies over and over.
            FunctionPassManager functions;
            functions.addPass(SROAPass(SROAOptions::ModifyCFG));
            functions.addPass(EarlyCSEPass());
            functions.addPass(SimplifyCFGPass());
            functions.addPass(InstCombinePass(InstCombineOptions().setMaxIterations(1)));
            functions.addPass(mote::OffsetPass());
            functions.addPass(EarlyCSEPass(/*UseMemorySSA=*/true));
            functions.addPass(SimplifyCFGPass());
            functions.addPass(mote::WitnessPass(statistics, true));
            pipeline.Passes.addPass(createModuleToFunctionPassAdaptor(std::move(functions)));
        } else {
            pipeline.Passes.addPass(builder.buildPerModuleDefaultPipeline(OptimizationLevel::O3));
        }
    }
    pipeline.Passes.run(module, pipeline.Modules);
    return 0;
}

int mote_emit(LLVMModuleRef wrapped, const MoteTarget *target, int level, uint8_t **object, size_t *length, char **error) {
    Module &module = *unwrap(wrapped);
    auto machine = machineFor(*target, level);
    if (!machine)
        return fail(error, "LLVM cannot generate code for " + target->Triple);
    SmallVector<char, 0> bytes;
    raw_svector_ostream stream(bytes);
    legacy::PassManager passes;
    passes.add(new TargetLibraryInfoWrapperPass(libraryFor(*target)));
    if (!addCodeGeneration(static_cast<LLVMTargetMachine &>(*machine), passes, stream))
        return fail(error, "LLVM cannot write objects for " + target->Triple);
    passes.run(module);
    *object = static_cast<uint8_t *>(malloc(bytes.size()));
    if (!*object)
        return fail(error, "out of memory for an object of " + std::to_string(bytes.size()) + " bytes");
    memcpy(*object, bytes.data(), bytes.size());
    *length = bytes.size();
    return 0;
}

void mote_free(void *pointer) { free(pointer); }

} // extern "C"
