/// The optimizer and its rate in a resolved configuration.
#include "resolved_case.hpp"

#include <gmock/gmock.h>

#include <map>

#include "tessera/config/learning_rate.hpp"

namespace tessera::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(ResolvedOptimizer, OptimArgsAreThoseOfTheOptimizerOfTheFlag) {
  auto const rmsprop = resolved("", {"--optim", "rmsprop", "--optim_args",
                                     "alpha=0.9, centered=true", "--weight_decay", "0.1"});
  EXPECT_EQ(rmsprop.optimizer.algorithm, "RMSprop");
  EXPECT_EQ(rmsprop.optimizer.value("alpha"), 0.9);
  EXPECT_EQ(rmsprop.optimizer.value("centered"), 1.0);
  EXPECT_EQ(rmsprop.optimizer.value("weight_decay"), 0.1);
  EXPECT_EQ(rmsprop.origins.at("alpha"), Origin::flag);
  auto const adagrad = resolved("", {"--optim", "adagrad"});
  EXPECT_EQ(adagrad.optimizer.value("eps"), 1e-10);  // not that of --adam_epsilon
  EXPECT_EQ(resolved("", {"--optim", "adagrad", "--adam_epsilon", "1e-6"}).optimizer.value("eps"),
            1e-6);
  EXPECT_EQ(resolved(R"({"optimizer": {"type": "adagrad", "params": {"eps": "auto"}}})")
                .optimizer.value("eps"),
            1e-8);
  auto const lion = resolved("", {"--optim", "paged_lion_32bit", "--optim_args", "beta2=0.99"});
  EXPECT_EQ(lion.optimizer.algorithm, "Lion");
  EXPECT_EQ(lion.optimizer.value("beta2"), 0.99);
  EXPECT_THAT(lion.notes, Contains(HasSubstr("no paging")));
  EXPECT_THAT(error_of(R"({"optimizer": {"type": "SGD"}})", {"--optim_args", "momentum=0.9"}),
              HasSubstr("move its values to optimizer.params"));
  EXPECT_THROW(
      resolved("", {"--optim", "sgd", "--optim_args", "weight_decay=0.1", "--weight_decay", "0.2"}),
      UsageError);
  EXPECT_THROW(resolved("", {"--optim", "sgd", "--optim_args", "nesterow=true"}), UsageError);
}

/// DeepSpeed's documented section; the steps with compression are refused when their number is
/// known.
TEST(ResolvedOptimizer, OneBitOptimizersKeepTheirParameters) {
  auto const c = resolved(R"({"optimizer": {"type": "OneBitAdam", "params": {"lr": 4e-4,
      "freeze_step": 23000, "cuda_aware": false, "comm_backend_name": "nccl"}}})");
  EXPECT_EQ(c.optimizer.algorithm, "OneBitAdam");
  EXPECT_EQ(c.optimizer.value("freeze_step"), 23000.0);
  EXPECT_THAT(c.notes, Contains(HasSubstr("comm_backend_name")));
  auto const lamb = resolved(
      R"({"optimizer": {"type": "lamb", "params": {"max_coeff": 0.3, "min_coeff": 0.01}}})");
  EXPECT_EQ(lamb.optimizer.value("max_coeff"), 0.3);
}

TEST(ResolvedOptimizer, AnOptimizerSectionWithoutARateHasThatOfDeepSpeed) {
  for (char const* json : {R"({"optimizer": {"type": "AdamW"}})",
                           R"({"optimizer": {"type": "SGD", "params": {"momentum": 0.9}}})"}) {
    auto const c = resolved(json);
    EXPECT_EQ(c.learning_rate, 1e-3) << json;
    EXPECT_EQ(c.origins.at("learning_rate"), Origin::deepspeed);
    EXPECT_THAT(c.notes, Contains(HasSubstr("DeepSpeed's default 0.001 is used")));
    auto const flag = resolved(json, {"--learning_rate", "3e-4"});
    EXPECT_EQ(flag.learning_rate, 3e-4) << "the user wrote it";
    EXPECT_THAT(flag.notes, Contains(HasSubstr("--learning_rate 0.0003 is used")));
  }
  for (auto const& [type, rate] : std::map<std::string, double>{{"Adagrad", 1e-2},
                                                                {"RMSprop", 1e-2},
                                                                {"Adamax", 2e-3},
                                                                {"NAdam", 2e-3},
                                                                {"RAdam", 1e-3},
                                                                {"Lamb", 1e-3},
                                                                {"Lion", 1e-3}})
    EXPECT_EQ(resolved(concat(R"({"optimizer": {"type": ")", type, "\"}}")).learning_rate, rate)
        << type;
  EXPECT_EQ(resolved(R"({"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})").learning_rate,
            5e-5);
  auto const warm = resolved(
      R"({"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupLR", "params":
      {"warmup_max_lr": "auto", "warmup_num_steps": 4}}})");
  EXPECT_EQ(scheduler_section(warm, 10).at("params").at("warmup_max_lr").as_double(), 5e-5)
      << "\"auto\" takes the flag";
}

TEST(ResolvedOptimizer, OneCycleMovesTheBetas) {
  std::string const scheduler =
      R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 1}})";
  auto const c = resolved(concat("{", scheduler, "}"));
  EXPECT_THAT(c.notes, Contains(HasSubstr("beta2 is 0.99")));
  EXPECT_TRUE(beta1_schedule(c.scheduler, 10));
  auto const sgd = resolved(concat(R"({"optimizer": {"type": "SGD"}, )", scheduler, "}"));
  EXPECT_THAT(sgd.notes, Contains(HasSubstr("SGD has no betas")));
  EXPECT_FALSE(beta1_schedule(sgd.scheduler, 10));
}

TEST(ResolvedOptimizer, MuonHasTwoRatesOnOneSchedule) {
  auto const given = resolved(
      R"({"optimizer": {"type": "muon", "params": {"lr": 0.01, "muon_lr": 0.02, "adam_lr": 1e-3}}})");
  EXPECT_EQ(given.learning_rate, 0.01);
  EXPECT_DOUBLE_EQ(given.optimizer.value("muon_rate"), 2.0);
  EXPECT_DOUBLE_EQ(given.optimizer.value("adam_rate"), 0.1);
  auto const none = resolved(R"({"optimizer": {"type": "Muon"}})");
  EXPECT_EQ(none.learning_rate, 0.02) << "DeepSpeed's defaults";
  EXPECT_DOUBLE_EQ(none.learning_rate * none.optimizer.value("adam_rate"), 3e-4);
  EXPECT_EQ(none.optimizer.value("momentum"), 0.95);
  EXPECT_EQ(none.optimizer.value("beta2"), 0.95);
  EXPECT_THROW((void)resolved(R"({"optimizer": {"type": "AdamW", "params": {"muon_lr": 0.02}}})"),
               ConfigError);
}

TEST(ResolvedOptimizer, AdafactorTakesTransformersArguments) {
  auto const c = resolved("", {"--optim", "adafactor", "--adam_beta1", "0.95", "--optim_args",
                               "scale_parameter=true,relative_step=True,warmup_init=True"});
  EXPECT_EQ(c.optimizer.algorithm, "Adafactor");
  EXPECT_EQ(c.optimizer.value("beta1"), 0.0) << "transformers does not pass --adam_beta1 on";
  EXPECT_EQ(c.optimizer.value("warmup_init"), 1.0);
  EXPECT_THAT(c.notes, Contains(HasSubstr("relative_step sets the rate")));
  EXPECT_THROW((void)resolved("", {"--optim", "adafactor", "--learning_rate", "1e-3",
                                   "--optim_args", "relative_step=true"}),
               UsageError);
  EXPECT_THROW((void)resolved(R"({"optimizer": {"type": "Adafactor"}})"), ConfigError);
}

std::string offloaded(std::string const& optimizer, std::string const& offload,
                      std::string const& more = "") {
  return concat(R"({"optimizer": {"type": ")", optimizer,
                R"("}, "zero_optimization": {"stage": 2, )", R"("offload_optimizer": {)", offload,
                "}}", more, "}");
}

TEST(ResolvedOptimizer, TakesAnOffloadThatItsUpdateHas) {
  std::string const part = R"("device": "cpu", "ratio": 0.5)", cpu = R"("device": "cpu")",
                    nvme = R"("device": "nvme", "nvme_path": "/drive")",
                    half = R"(, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true,
                             "bf16_optimizer_states": true})";
  Words const delayed{"--delayed_update_from_step", "2"};
  EXPECT_EQ(error_of(offloaded("AdamW", part)), "");
  EXPECT_EQ(error_of(offloaded("AdamW", cpu), delayed), "");
  EXPECT_THAT(error_of(offloaded("AdamW", part), delayed),
              HasSubstr("leave ratio or --delayed_update_from_step out"));
  EXPECT_THAT(error_of(offloaded("Lamb", cpu), delayed),
              HasSubstr("another element-wise optimizer"));
  EXPECT_EQ(error_of(offloaded("AdamW", cpu, half)), "");
  EXPECT_THAT(error_of(offloaded("AdamW", nvme, half)), HasSubstr("states of 16 bits"));
  auto c = resolved(offloaded("AdamW", part));
  c.optimizer = optim::make_spec("AdamW8bit");
  EXPECT_THROW(check_together(c), ConfigError);
}

TEST(ResolvedOptimizer, OneBitOptimizersAreOfStage0) {
  std::string const one_bit =
      R"({"optimizer": {"type": "OneBitAdam"}, "zero_optimization": {"stage": )";
  EXPECT_EQ(error_of(one_bit + "0}}"), "");
  EXPECT_THAT(error_of(one_bit + "1}}"), HasSubstr("not compatible with ZeRO"));
  auto c = resolved(one_bit + "0}}");
  c.stage = 3;
  EXPECT_THROW(check_together(c), ConfigError);
}

}  // namespace
}  // namespace tessera::config
