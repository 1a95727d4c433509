#pragma once
/// Libraries that a program uses where they are and does without where they are not: loaded at the
/// first need, never unloaded.

#include <string>
#include <vector>

namespace tessera {

class SharedLibrary {
 public:
  SharedLibrary() = default;
  /// The first of @p files that can be loaded: names for the loader's own search, or paths.
  explicit SharedLibrary(std::vector<std::string> const& files);

  bool loaded() const { return handle_ != nullptr; }
  /// dlopen()'s
  void* handle() const { return handle_; }
  /// What the loader said about the first file; empty when one was loaded.
  std::string const& refusal() const { return refusal_; }
  /// Null when the library is not loaded or has no such name.
  void* find(char const* name) const;
  template <class Function>
  bool find(char const* name, Function*& function) const {
    function = reinterpret_cast<Function*>(find(name));
    return function != nullptr;
  }

 private:
  void* handle_ = nullptr;
  std::string refusal_;
};

}  // namespace tessera
