#include "gpu/lt/lt_library.h"

#include <dlfcn.h>

#include "base/check.h"
#include "base/env.h"

namespace plait::gpu {
namespace {

constexpr const char* kFile = "libcublasLt.so.13";
constexpr const char* kFileVariable = "PLAIT_CUBLASLT";
constexpr std::size_t kMajor = 13;

// Finds functions by their names, and keeps the first name that is missing.
class Finder {
 public:
  explicit Finder(void* library) : library_(library) {}

  template <class Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library_, name));
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }

  const char* missing() const { return missing_; }

 private:
  void* library_;
  const char* missing_ = nullptr;
};

const char* find_functions(void* library, LtLibrary& lt) {
  Finder finder(library);
  finder.find(lt.version, "cublasLtGetVersion");
  finder.find(lt.status_text, "cublasLtGetStatusString");
  finder.find(lt.create, "cublasLtCreate");
  finder.find(lt.destroy, "cublasLtDestroy");
  finder.find(lt.create_desc, "cublasLtMatmulDescCreate");
  finder.find(lt.destroy_desc, "cublasLtMatmulDescDestroy");
  finder.find(lt.set_desc, "cublasLtMatmulDescSetAttribute");
  finder.find(lt.create_layout, "cublasLtMatrixLayoutCreate");
  finder.find(lt.destroy_layout, "cublasLtMatrixLayoutDestroy");
  finder.find(lt.create_preference, "cublasLtMatmulPreferenceCreate");
  finder.find(lt.destroy_preference, "cublasLtMatmulPreferenceDestroy");
  finder.find(lt.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  finder.find(lt.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  finder.find(lt.describe, "cublasLtMatmulAlgoConfigGetAttribute");
  finder.find(lt.matmul, "cublasLtMatmul");
  return finder.missing();
}

LtLibrary load() {
  const std::string file = base::env(kFileVariable).value_or(kFile);
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    return {.refusal = base::sentence("cuBLASLt does not load: ", ::dlerror(), "; ", kFileVariable,
                                      " can name its file")};
  }
  LtLibrary lt;
  if (const char* missing = find_functions(library, lt))
    return {.refusal = base::sentence(file, " has no function ", missing)};
  const std::size_t version = lt.version();
  if (version / 10000 != kMajor) {
    return {.refusal = base::sentence(file, " is version ", version / 10000,
                                      " of cuBLASLt, and only version ", kMajor, " can be used")};
  }
  return lt;
}

}  // namespace

const LtLibrary& lt_library() {
  static const LtLibrary library = load();
  return library;
}

}  // namespace plait::gpu
