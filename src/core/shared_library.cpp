#include "tessera/core/shared_library.hpp"

#include <dlfcn.h>

namespace tessera {

SharedLibrary::SharedLibrary(std::vector<std::string> const& files) {
  for (auto const& file : files) {
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_) {
      load_error_.clear();
      return;
    }
    char const* const said = dlerror();
    if (load_error_.empty()) load_error_ = said ? said : file + " cannot be loaded";
  }
}

void* SharedLibrary::find(char const* name) const {
  return handle_ ? dlsym(handle_, name) : nullptr;
}

}  // namespace tessera
