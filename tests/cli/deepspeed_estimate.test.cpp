/// The rows that DeepSpeed 0.19.8 prints, recorded from
/// estimate_zero2_model_states_mem_needs() and estimate_zero3_model_states_mem_needs() by
/// tests/oracles/deepspeed_estimates.py. In the tables OffloadDeviceEnum.cpu is written cpu.
#include "estimate/deepspeed_estimate.hpp"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

struct Recorded {
  EstimatedModel model;
  EstimatedHardware hardware;
  std::vector<std::pair<std::int64_t, std::int64_t>> zero2, zero3;
};

std::vector<std::pair<std::int64_t, std::int64_t>> bytes(std::vector<EstimateRow> const& rows) {
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  for (auto const& row : rows) out.emplace_back(row.host_bytes, row.gpu_bytes);
  return out;
}

Recorded const recorded[] = {
    {{2783959040, 65798144},
     {1, 1, 1.5},
     {{66815016960, 5567918080}, {16703754240, 55679180800}},
     {{75166894080, 263192576},
      {75166894080, 263192576},
      {66815016960, 5831110656},
      {66815016960, 5831110656},
      {394788864, 50374455296},
      {16703754240, 50374455296}}},
    {{2783959040, 65798144},
     {1, 2, 1.5},
     {{66815016960, 5567918080}, {33407508480, 30623549440}},
     {{75166894080, 263192576},
      {75166894080, 263192576},
      {66815016960, 3047151616},
      {66815016960, 3047151616},
      {789577728, 25318823936},
      {33407508480, 25318823936}}},
    {{2783959040, 65798144},
     {4, 8, 1.5},
     {{534520135680, 5567918080}, {133630033920, 7133895040}},
     {{18791723520, 263192576},
      {133630033920, 263192576},
      {16703754240, 437190016},
      {133630033920, 437190016},
      {3158310912, 1829169536},
      {133630033920, 1829169536}}},
    {{2851000000, 32000000},
     {1, 8, 1.5},
     {{136848000000, 5702000000}, {136848000000, 12116750000}},
     {{76977000000, 128000000},
      {136848000000, 128000000},
      {68424000000, 840750000},
      {136848000000, 840750000},
      {1536000000, 6542750000},
      {136848000000, 6542750000}}},
    {{124439808, 38597376},
     {3, 5, 1.25},
     {{9332985600, 248879616}, {3110995200, 398207385}},
     {{933298560, 154389504},
      {3110995200, 154389504},
      {829598720, 170981478},
      {3110995200, 170981478},
      {964934400, 303717273},
      {3110995200, 303717273}}},
    {{174604259328, 617558016},
     {64, 8, 1.0},
     {{357589523103744, 349208518656}, {5587336298496, 355346949648}},
     {{49107447936, 2470232064},
      {5587336298496, 2470232064},
      {43651064832, 3152279952},
      {5587336298496, 3152279952},
      {19761856512, 8608663056},
      {5587336298496, 8608663056}}},
};

TEST(DeepSpeedEstimate, HasTheBytesOfItsFunctions) {
  for (auto const& r : recorded) {
    EXPECT_EQ(bytes(estimate_zero2(r.model, r.hardware)), r.zero2);
    EXPECT_EQ(bytes(estimate_zero3(r.model, r.hardware)), r.zero3);
  }
}

TEST(DeepSpeedEstimate, PrintsItsTables) {
  EXPECT_EQ(zero3_table({2783959040, 65798144}, {1, 2, 1.5}),
            R"(Estimated memory needed for params, optim states and gradients for a:
HW: Setup with 1 node, 2 GPUs per node.
SW: Model with 2783M total params, 65M largest layer params.
  per CPU  |  per GPU |   Options
   70.00GB |   0.25GB | offload_param=cpu , offload_optimizer=cpu , zero_init=1
   70.00GB |   0.25GB | offload_param=cpu , offload_optimizer=cpu , zero_init=0
   62.23GB |   2.84GB | offload_param=none, offload_optimizer=cpu , zero_init=1
   62.23GB |   2.84GB | offload_param=none, offload_optimizer=cpu , zero_init=0
    0.74GB |  23.58GB | offload_param=none, offload_optimizer=none, zero_init=1
   31.11GB |  23.58GB | offload_param=none, offload_optimizer=none, zero_init=0
)");
  EXPECT_EQ(zero2_table({2783959040, 65798144}, {4, 8, 1.5}),
            R"(Estimated memory needed for params, optim states and gradients for a:
HW: Setup with 4 nodes, 8 GPUs per node.
SW: Model with 2783M total params.
  per CPU  |  per GPU |   Options
  497.81GB |   5.19GB | offload_optimizer=cpu
  124.45GB |   6.64GB | offload_optimizer=none
)");
}

}  // namespace
}  // namespace tessera::cli
