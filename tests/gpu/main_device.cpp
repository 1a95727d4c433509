/// Main of suites that compare a device with the host: with the argument "device" on a GPU, else,
/// to try the suite itself, on a device made of host memory. Without a GPU the argument
/// skips the suite (exit code 77).
#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <string_view>

#include "fake_device.hpp"
#include "tessera/memory/runtime.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();  // needs no device
  using namespace tessera;
  std::optional<test::FakeDevice> fake;
  memory::RuntimeOptions options;
  if (argc > 1 && std::string_view(argv[1]) == "device") {
    auto const found = memory::find_devices();
    if (found.count == 0) {
      std::printf("skipped: %s\n", found.reason.c_str());
      return 77;
    }
    options.device = 0;
  } else {
    fake.emplace();
  }
  memory::Runtime const runtime(options);
  return RUN_ALL_TESTS();
}
