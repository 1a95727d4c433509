// libFuzzer's entry: which reader is asked is in TESSERA_FUZZ_TARGET.
#include <cstdio>
#include <cstdlib>

#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  static tessera::fuzz::Target const& target = [&]() -> auto const& {
    char const* name = std::getenv("TESSERA_FUZZ_TARGET");
    try {
      return tessera::fuzz::find_target(name ? name : "");
    } catch (tessera::Error const& e) {
      std::fprintf(stderr, "%s; put it into TESSERA_FUZZ_TARGET\n", e.what());
      std::_Exit(64);
    }
  }
  ();
  target.run({reinterpret_cast<char const*>(data), size});
  return 0;
}
