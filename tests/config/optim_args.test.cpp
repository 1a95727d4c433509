#include "detail/optimizer_keys.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

using Values = std::vector<optim::Hyperparameter>;

Values parsed(std::string const& text, char const* algorithm) {
  return parse_optim_args(text, optim::optimizer_info(algorithm));
}

TEST(OptimArgs, AreNamesWithValues) {
  EXPECT_EQ(parsed("", "SGD"), Values{});
  EXPECT_EQ(parsed("momentum=0.9, nesterov=True", "SGD"),
            (Values{{"momentum", 0.9}, {"nesterov", 1.0}}));
  EXPECT_EQ(parsed("alpha=.95,eps=1e-6,centered=no", "RMSprop"),
            (Values{{"alpha", 0.95}, {"eps", 1e-6}, {"centered", 0.0}}));
  EXPECT_EQ(parsed("beta1=0.95", "Lion"), (Values{{"beta1", 0.95}}));
}

TEST(OptimArgs, AreRefusedByName) {
  struct Bad {
    char const *text, *algorithm, *message;
  };
  for (auto const& [text, algorithm, message] : std::vector<Bad>{
           {"momentun=0.9", "SGD", "\"momentun\"; did you mean momentum?"},
           {"rank=128", "SGD", "SGD has no parameter \"rank\"; it has momentum, dampening"},
           {"rank=128,momentum=0.9,speed=3", "SGD",
            "SGD has no parameters \"rank\", \"speed\"; it has momentum, dampening"},
           {"momentum", "SGD", "\"momentum\" has no \"=\""},
           {"momentum=fast", "SGD", "momentum is \"fast\"; it must be a number"},
           {"momentum=0.9x", "SGD", "momentum is \"0.9x\""},
           {"nesterov=2", "SGD", "nesterov is \"2\"; it must be true or false"},
           {"momentum=0.9,momentum=0.8", "SGD", "momentum occurs twice"},
           {"lr=0.1", "Adagrad", "\"lr\""}}) {
    try {
      (void)parsed(text, algorithm);
      ADD_FAILURE() << text << " was accepted";
    } catch (UsageError const& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace tessera::config::detail
