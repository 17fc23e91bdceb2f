-- Three functions whose shares of the processor time it tells itself.
module Main (main) where

import Control.Monad (forever, when)
import Data.Bits (shiftL, shiftR, xor)
import Data.IORef
import Data.List (foldl', sort)
import qualified Data.Map.Strict as Map
import Data.Word (Word64)
import System.CPUTime (getCPUTime)
import System.IO (hFlush, stdout)

alpha :: Word64 -> Word64
alpha = go (500000 :: Int)
  where
    go 0 x = x
    go n x = let a = x `xor` (x `shiftL` 13); b = a `xor` (a `shiftR` 7) in go (n - 1) (b `xor` (b `shiftL` 17))
{-# NOINLINE alpha #-}

beta :: Word64 -> Word64
beta x = fromIntegral (foldl' (+) 0 (zipWith (*) (cycle [1, 2, 3]) (sort [(i * 7919 + fromIntegral x) `mod` 10007 | i <- [1 .. 3000 :: Int]])))
{-# NOINLINE beta #-}

gamma :: Word64 -> Word64
gamma x = fromIntegral (Map.foldl' (+) 0 (foldl' (\table i -> Map.insertWith (+) (i * 7919 `mod` 10007) i table) Map.empty [fromIntegral x `mod` 7 .. 2000 :: Int]))
{-# NOINLINE gamma #-}

timed :: IORef Integer -> (Word64 -> Word64) -> Word64 -> IO Word64
timed taken part x = do
  before <- getCPUTime
  y <- return $! part x
  after <- getCPUTime
  modifyIORef' taken (+ (after - before))
  return y
{-# NOINLINE timed #-}

main :: IO ()
main = do
  sink <- newIORef 1
  told <- getCPUTime >>= newIORef
  taken <- mapM (const (newIORef 0)) "abc"
  forever $ do
    x <- readIORef sink
    parts <- sequence (zipWith (\t part -> timed t part x) taken [alpha, beta, gamma])
    writeIORef sink $! foldl' xor x parts + 1
    now <- getCPUTime
    before <- readIORef told
    when (now > before + 200000000000) $ do
      writeIORef told now
      seconds <- mapM (fmap ((/ 1e12) . fromIntegral) . readIORef) taken
      putStrLn (unwords (zipWith (\name s -> name ++ " " ++ show (s :: Double)) ["alpha", "beta", "gamma"] seconds))
      hFlush stdout
