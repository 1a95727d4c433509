#pragma once
/// What tests of NCCL's implementation share: collectives over the fake NCCL on a fake device. At
/// the end of each test nothing is held and NCCL's contract was kept.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>

#include "comm_test.hpp"
#include "fake_device.hpp"
#include "fake_nccl.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"

namespace tessera::comm::test {

using memory::MemoryTracker;
using memory::Purpose;
using tessera::test::nccl_faults;
using tessera::test::nccl_in_use;
using tessera::test::NcclCtas;
using tessera::test::NcclInUse;
using tessera::test::take_nccl_aborts;
using tessera::test::take_nccl_breaches;
using tessera::test::take_nccl_ctas;
using tessera::test::take_nccl_launches;

inline constexpr Deadline brief = 800ms;

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    nccl_faults() = {};
    for (char const* name : {"NCCL_LAUNCH_ORDER_IMPLICIT", "NCCL_WIN_ENABLE", "NCCL_CTA_POLICY"})
      unsetenv(name);
    take_nccl_launches();
    held_before_ = MemoryTracker::of_device().current_total();
  }
  void TearDown() override {
    comm_.reset();
    forget_events();
    nccl_faults() = {};
    EXPECT_EQ(take_nccl_breaches(), std::vector<std::string>{});
    EXPECT_EQ(nccl_in_use(), tessera::test::NcclInUse{});
    EXPECT_EQ(MemoryTracker::of_device().current_total(), held_before_);
    EXPECT_EQ(device_.held, 0u);
  }

  Collectives& make(Deadline deadline = 60s, NcclOptions const& options = {}) {
    comm_ = make_device(make_mpi(tessera::test::session(), 60s), deadline, DeviceTransport::nccl,
                        options);
    return *comm_;
  }
  int rank() const { return tessera::test::session().info().rank; }
  int ranks() const { return tessera::test::session().info().world_size; }
  bool is_last() const { return rank() == ranks() - 1; }

  /// The text of the E that @p work throws.
  template <class E>
  std::string refusal(std::function<void()> const& work) {
    try {
      work();
    } catch (E const& error) {
      return error.what();
    } catch (std::exception const& error) {
      ADD_FAILURE() << "another error: " << error.what();
      return {};
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  static void expect_text(std::string const& text, std::vector<std::string> const& parts) {
    for (auto const& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  }

  tessera::test::FakeDevice device_;
  std::unique_ptr<Collectives> comm_;
  std::size_t held_before_ = 0;
};

}  // namespace tessera::comm::test
