#pragma once
/// Two checkpoints of two ranks to damage, and manifests that are edited and sealed again.

#include <xxhash.h>

#include <cstdio>
#include <string>

#include "fixture.hpp"

namespace tessera::test {

inline std::string replaced(std::string text, std::string const& from, std::string const& to) {
  auto const at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

/// The manifest's own checksum made right again after an edit.
inline std::string sealed(std::string text) {
  auto const at = text.rfind("\"manifest_xxh3\"");
  return text.substr(0, at) +
         concat(
             "\"manifest_xxh3\": \"",
             [&] {
               char hex[17];
               std::snprintf(hex, sizeof hex, "%016llx",
                             static_cast<unsigned long long>(XXH3_64bits(text.data(), at)));
               return std::string(hex);
             }(),
             "\"\n}\n");
}

class Damage : public ::testing::Test {
 protected:
  Damage() {
    save_toy(dir.path(), 10, 2);
    step = save_toy(dir.path(), 20, 2).directory;
  }
  void edit(std::string const& from, std::string const& to) {
    write_file(step / "manifest.json",
               sealed(replaced(read_file(step / "manifest.json"), from, to)));
  }
  std::string manifest_error() {
    return message_of<DataError>([&] { checkpoint::read_manifest(step); });
  }
  ScratchDirectory dir;
  fs::path step;
};

}  // namespace tessera::test
