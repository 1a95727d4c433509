#pragma once
/// Optional shared libraries, loaded on first use with dlopen() and never unloaded.

#include <string>
#include <vector>

namespace tessera {

class SharedLibrary {
 public:
  SharedLibrary() = default;
  /// Loads the first of @p files that can be loaded: library names or paths, as dlopen() takes
  /// them.
  explicit SharedLibrary(std::vector<std::string> const& files);

  bool loaded() const { return handle_ != nullptr; }
  /// The handle from dlopen(), or null.
  void* handle() const { return handle_; }
  /// The loader's message for the first file; empty when a library is loaded.
  std::string const& load_error() const { return load_error_; }
  /// The symbol's address; null when the library is not loaded or has no such symbol.
  void* find(char const* name) const;
  template <class Function>
  bool find(char const* name, Function*& function) const {
    function = reinterpret_cast<Function*>(find(name));
    return function != nullptr;
  }

 private:
  void* handle_ = nullptr;
  std::string load_error_;
};

}  // namespace tessera
