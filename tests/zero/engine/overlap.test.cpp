/// Communication continues during computation: while an operation is blocked, the model may do
/// everything that does not need it.
#include <atomic>
#include <functional>
#include <future>

#include "engine_fixture.hpp"

namespace tessera::test {
namespace {

using namespace comm;

/// Forwards to another implementation; from a chosen operation on, the queue waits until it is let
/// go.
class HeldUpCollectives final : public Collectives {
 public:
  explicit HeldUpCollectives(std::unique_ptr<Collectives> inner)
      : inner_(std::move(inner)), gate_(memory::make_worker_queue("gate")) {}

  /// The @p count-th operation from now on, counted from 0, does not start before let_go().
  void hold_up(int count) {
    countdown_ = count;
    opened_ = std::promise<void>();
    has_opened_ = opened_.get_future().share();
    gate_->submit([opened = has_opened_] { opened.wait(); });
    held_ = gate_->record();
    holding_ = true;
  }
  bool held() const { return reached_ && holding_; }
  void let_go() {
    if (holding_.exchange(false)) opened_.set_value();
  }
  /// Lets go after a while, so that a test that waits wrongly fails instead of hanging.
  void let_go_after(std::chrono::milliseconds time) {
    rescue_ = std::async(std::launch::async, [this, opened = has_opened_, time] {
      if (opened.wait_for(time) == std::future_status::timeout) let_go();
    });
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Collectives> split(topology::RankGroup const& group) override {
    return inner_->split(group);
  }
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override {
    return inner_->allocate(name, purpose, bytes);
  }
  Pending broadcast(memory::TensorView d, int root, memory::Event a) override {
    return inner_->broadcast(d, root, gated(a));
  }
  Pending all_reduce(memory::TensorView d, ReduceOp op, memory::Event a) override {
    return inner_->all_reduce(d, op, gated(a));
  }
  Pending reduce(memory::TensorView d, ReduceOp op, int root, memory::Event a) override {
    return inner_->reduce(d, op, root, gated(a));
  }
  Pending reduce_scatter(memory::TensorView in, StridedShards b, memory::TensorView out,
                         memory::WriteMode mode, memory::Event a) override {
    return inner_->reduce_scatter(in, b, out, mode, gated(a));
  }
  Pending all_gather(memory::TensorView d, StridedShards b, memory::Event a) override {
    return inner_->all_gather(d, b, gated(a));
  }
  Pending all_gather(memory::ConstTensorView in, memory::TensorView out, StridedShards b,
                     memory::Event a) override {
    return inner_->all_gather(in, out, b, gated(a));
  }
  Pending scatter(memory::ConstTensorView in, memory::TensorView out, int root,
                  memory::Event a) override {
    return inner_->scatter(in, out, root, gated(a));
  }
  Pending gather(memory::ConstTensorView in, memory::TensorView out, int root,
                 memory::Event a) override {
    return inner_->gather(in, out, root, gated(a));
  }
  Pending all_to_all(memory::ConstTensorView in, memory::TensorView out, memory::Event a) override {
    return inner_->all_to_all(in, out, gated(a));
  }
  Pending all_to_all(memory::ConstTensorView in, Parts const& send, memory::TensorView out,
                     Parts const& receive, memory::Event a) override {
    return inner_->all_to_all(in, send, out, receive, gated(a));
  }
  Pending send(memory::ConstTensorView d, int to, memory::Event a) override {
    return inner_->send(d, to, gated(a));
  }
  Pending receive(memory::TensorView d, int from, memory::Event a) override {
    return inner_->receive(d, from, gated(a));
  }
  void wait(Pending const& pending) override {
    if (held() && on_wait) on_wait();
    inner_->wait(pending);
  }
  void barrier() override { inner_->barrier(); }

  std::function<void()> on_wait;  ///< when the host waits while an operation is held up

 private:
  memory::Event gated(memory::Event const& after) {
    if (!holding_ || countdown_-- != 0) return after;
    reached_ = true;
    return held_;
  }

  std::unique_ptr<Collectives> inner_;
  std::unique_ptr<memory::Queue> gate_;
  std::promise<void> opened_;
  std::shared_future<void> has_opened_;
  memory::Event held_;
  std::atomic<bool> holding_ = false;
  bool reached_ = false;
  int countdown_ = 0;
  std::future<void> rescue_;
};

/// Trains like Training, on a queue that can be blocked.
struct HeldUpTraining {
  explicit HeldUpTraining(zero::EngineConfig const& config)
      : comm(make_comm()),
        compute(memory::make_inline_queue("compute")),
        engine(zero::make_engine(config, model.units(), comm, *compute)) {
    engine->initialize([](UnitIndex u, int p, std::int64_t first, std::int64_t numel, float* out) {
      for (std::int64_t i = 0; i < numel; ++i) out[i] = QuadraticModel::initial(u, p, first + i);
    });
  }
  void micro_step() {
    int const share = global_samples / comm.size();
    engine->begin_step();
    engine->begin_micro_step(0, 1);
    model.train(comm.rank() * share, share, 1.0 / global_samples, *engine, *compute);
  }

  QuadraticModel model{3};
  HeldUpCollectives comm;
  std::unique_ptr<memory::Queue> compute;
  std::unique_ptr<zero::Engine> engine;
};

bool alone() { return session().info().world_size == 1; }

/// A unit's reduction is in flight while the gradients of the next unit are computed.
TEST(Overlap, BackwardContinuesWhileAReductionIsHeldUp) {
  if (alone()) return;
  for (int stage = 0; stage <= 3; ++stage) {
    HeldUpTraining training(config_of(stage));
    training.micro_step();
    training.engine->finish_step(1e-2);
    bool computed_meanwhile = false;
    training.model.spoil = [&](UnitIndex unit, int, std::int64_t, float g) {
      if (unit == UnitIndex(3))
        computed_meanwhile |= training.comm.held();  // the unit after the head in the backward pass
      if (unit == UnitIndex(2)) training.comm.let_go();
      return g;
    };
    training.comm.hold_up(0);  // stage 3 has gathered all units while the step before updated them
    training.comm.let_go_after(std::chrono::seconds(20));
    training.micro_step();
    training.comm.let_go();
    training.engine->finish_step(1e-2);
    EXPECT_TRUE(computed_meanwhile) << "stage " << stage;
  }
}

/// Without overlap the reduction is waited for immediately.
TEST(Overlap, CanBeSwitchedOff) {
  if (alone()) return;
  for (int stage = 0; stage <= 3; ++stage) {
    auto config = config_of(stage);
    config.overlap_comm = false;
    HeldUpTraining training(config);
    bool computed_meanwhile = false;
    training.model.spoil = [&](UnitIndex unit, int, std::int64_t, float g) {
      if (unit == UnitIndex(3)) computed_meanwhile |= training.comm.held();
      return g;
    };
    training.comm.hold_up(stage == 3 ? 5 : 0);
    training.comm.let_go_after(std::chrono::milliseconds(200));
    training.micro_step();
    training.engine->finish_step(1e-2);
    EXPECT_FALSE(computed_meanwhile) << "stage " << stage;
  }
}

/// The next step starts with the first unit's weights, while those of the last are still on their
/// way.
TEST(Overlap, AcquireWaitsForItsUnitOnly) {
  if (alone()) return;
  for (int stage = 1; stage <= 2; ++stage) {
    HeldUpTraining training(config_of(stage));
    UnitIndex const last = training.model.head();
    training.micro_step();
    training.comm.hold_up(1 +
                          static_cast<int>(last));  // the statistics and all gathers but the last
    training.comm.let_go_after(std::chrono::seconds(20));
    training.engine->finish_step(1e-2);
    training.engine->begin_pass(memory::Pass::evaluation, {first_unit, last});
    (void)training.engine->acquire(UnitIndex(0), *training.compute);
    EXPECT_TRUE(training.comm.held()) << "stage " << stage;
    training.comm.let_go();
    (void)training.engine->acquire(last, *training.compute);
  }
}

/// The host comes to wait for the sums of the step after the update where it does without them:
/// no clipping, no overflow check. Else the update starts when they are there.
TEST(Overlap, TheUpdatePrecedesANormThatItDoesNotNeed) {
  if (alone()) return;
  for (int stage = 0; stage <= 3; ++stage)
    for (auto const& [clip, checks] : {std::pair{0.0, false}, {1e-3, false}, {0.0, true}}) {
      auto config = config_of(stage);
      config.max_grad_norm = clip;
      config.skip_on_nonfinite = checks;
      HeldUpTraining training(config);
      float const* const exp_avg = training.engine->state()[1].unit_shards[0];
      auto const is_updated = [&] { return exp_avg[0] != 0.0f; };
      bool precedes = false;
      training.comm.on_wait = [&] {
        precedes = is_updated();
        training.comm.let_go();
      };
      training.micro_step();
      training.comm.hold_up(0);
      training.comm.let_go_after(clip == 0.0 && !checks ? std::chrono::seconds(20)
                                                        : std::chrono::milliseconds(100));
      auto const result = training.engine->finish_step(1e-2);
      EXPECT_GT(result.grad_norm, 0.0);
      EXPECT_TRUE(is_updated());
      EXPECT_EQ(precedes, clip == 0.0 && !checks) << "stage " << stage << ", clipping " << clip;
    }
}

}  // namespace
}  // namespace tessera::test
