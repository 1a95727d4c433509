#include <cstdio>
#include <tessera/config/option_table.hpp>
#include <tessera/core/error.hpp>
#include <tessera/data/sequences/text_dataset.hpp>
#include <tessera/zero/layout/partition_plan.hpp>

/// Prints the tokens of a text file of any kind: consumer FILE TOKENIZER CACHE_FOLDER
int read_text(char** argv) {
  try {
    tessera::data::SequenceRequest request;
    request.text = argv[1];
    request.block_size = 4;
    request.cache_folder = argv[3];
    tessera::data::Tokenizer const tokenizer(argv[2]);
    auto const sequences = tessera::data::build_or_open_sequences(request, tokenizer);
    std::printf("%lld records, %lld tokens\n", static_cast<long long>(sequences.records()),
                static_cast<long long>(sequences.tokens()));
    return 0;
  } catch (tessera::Error const& error) {
    std::fprintf(stderr, "consumer: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}

int main(int argc, char** argv) {
  if (argc == 4) return read_text(argv);
  tessera::memory::UnitSpec unit{"unit", {{"weight", {10, 100}, {}, true, {}}}};
  tessera::zero::PartitionPlan const plan({unit}, 3);
  std::printf("%lld parameters over %d ranks: %lld elements a rank\n",
              static_cast<long long>(plan.parameter_count()), plan.ranks(),
              static_cast<long long>(plan.partition_numel()));
  return tessera::config::argument_table().options().empty() ? 1 : 0;
}
