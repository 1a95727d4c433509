#include "tokenizer/batch_encoder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

std::string const folder = TESSERA_TEST_DATA "/data/vectors/tokenizer/gpt2";

std::vector<std::string> batch(int number) {
  std::vector<std::string> out;
  for (int i = 0; i < 50; ++i) out.push_back("word " + std::to_string(number * 1000 + i));
  return out;
}

TEST(BatchEncoder, GivesBatchesInTheirOrder) {
  Tokenizer const tokenizer(folder);
  for (int const threads : {1, 2, 5}) {
    BatchEncoder encoder(tokenizer, threads);
    int popped = 0;
    auto const check = [&] {
      EncodedBatch const got = encoder.pop();
      EncodedBatch const expected = encode_batch(tokenizer, batch(popped++));
      EXPECT_EQ(got.ids, expected.ids);
      EXPECT_EQ(got.ends, expected.ends);
    };
    for (int i = 0; i < 200; ++i) {
      encoder.push(batch(i));
      if (encoder.full()) check();
    }
    while (encoder.size() > 0) check();
    EXPECT_EQ(popped, 200);
  }
}

TEST(BatchEncoder, EndsWithBatchesThatNobodyTakes) {
  Tokenizer const tokenizer(folder);
  BatchEncoder encoder(tokenizer, 4);
  for (int i = 0; i < 20; ++i) encoder.push(batch(i));
}

TEST(BatchEncoder, WorksWithoutTheFilesOfTheTokenizer) {
  ScratchFiles const scratch;
  std::filesystem::copy(folder + "/tokenizer.json", scratch.directory());
  Tokenizer const tokenizer(scratch.directory());
  std::filesystem::remove(scratch.directory() / "tokenizer.json");
  BatchEncoder encoder(tokenizer, 3);
  for (int i = 0; i < 10; ++i) encoder.push(batch(i));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(encoder.pop().ids, encode_batch(tokenizer, batch(i)).ids);
}

}  // namespace
}  // namespace tessera::data::detail
